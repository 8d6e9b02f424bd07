# The few verbs of this project. Every target makes the virtual environment when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev

.PHONY: help setup demo test check bench profiles clean
help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[scheduler,manager]'
	@touch $@

$(DEV_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet $$($(BIN)/python -c "import tomllib; g = tomllib.load(open('pyproject.toml', 'rb'))['dependency-groups']; print(*g['test'], *g['lint'])")
	@touch $@

setup: $(DEV_STAMP)  ## make .venv with everything a developer needs
demo: $(STAMP)  ## compare three policies on the bundled AlloX workload; leaves out/demo/
	$(BIN)/emugpu compare examples/allox-40/workload.csv --cluster examples/allox-40/cluster.yaml \
	  --policy drf-fifo --policy drf-sjf --policy allox --speed 10 --out out/demo
test: $(DEV_STAMP)  ## run the tests
	$(BIN)/python -m pytest
check: $(DEV_STAMP)  ## ruff, mypy, import-linter
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
bench: $(DEV_STAMP)  ## benchmark tables (they never fail by a clock); RabbitMQ is compared with if it is installed
	$(BIN)/python -m pip install --quiet pika
	$(BIN)/python -m tests.benchmarks
profiles: $(STAMP)  ## derive the profiles' knots from measurements: make profiles DATA=directory
	$(BIN)/python tools/derive_profiles.py $(DATA)
clean:  ## remove the virtual environment and all output
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
