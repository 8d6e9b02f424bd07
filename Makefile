# The few verbs of this project. Every target makes the virtual environment when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev

CLUSTER ?= emugpu

unexport PYTHONDONTWRITEBYTECODE  # hundreds of short Python processes would each compile their modules again

.PHONY: help setup demo experiment test test-slow test-frameworks frameworks check kube-programs kind-up kind-down e2e e2e-long bench profiles constraints clean
help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[scheduler,node,operator,kubectl,search,learning]'
	@touch $@

$(DEV_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $$($(BIN)/python -c "import tomllib; g = tomllib.load(open('pyproject.toml', 'rb'))['dependency-groups']; print(*g['test'], *g['lint'])")
	@touch $@

setup: $(DEV_STAMP)  ## make .venv with everything a developer needs
demo: $(STAMP)  ## compare three policies on the bundled AlloX workload; leaves out/demo/
	$(BIN)/emugpu compare examples/allox-40/workload.csv --cluster examples/allox-40/cluster.yaml \
	  --policy drf-fifo --policy drf-sjf --policy allox --warp --speed 0.1 --out out/demo
experiment: $(STAMP)  ## the same jobs and policies on a Kubernetes cluster of 4 + 8 nodes; about 45 minutes; leaves out/experiment/
	$(BIN)/emugpu cluster up --name experiment --node-gpus 4x1xV100 --cpu-nodes 8 --emulated-cpus 96 --emulated-memory 500Gi
	KUBECONFIG=$$($(BIN)/emugpu cluster kubeconfig --name experiment) \
	  $(BIN)/emugpu compare examples/allox-40/workload.csv --cluster examples/allox-40/cluster.yaml --on kubernetes \
	  --policy drf-fifo --policy drf-sjf --policy allox --stretch 4 --out out/experiment
WORKERS ?= $$((2 * $$(nproc)))
PYTEST = $(BIN)/python -m pytest --quiet --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder
test: $(DEV_STAMP)  ## run the tests, two processes per core since many tests wait (WORKERS=N; ARGS=options of pytest)
	$(PYTEST) -m "not frameworks and not slow" $(ARGS)
test-slow: $(DEV_STAMP)  ## run those that take longest: compilers, browsers, kills, local clusters, an API server
	$(PYTEST) -m "slow and not frameworks" $(ARGS)
FRAMEWORKS = tests/cuda_frameworks tests/emulator_runtime/cuda
test-frameworks: $(DEV_STAMP)  ## run programs with PyTorch on emulated GPUs (make frameworks first), those that measure time one by one; about 14 minutes
	$(BIN)/python -m pytest --quiet --numprocesses $$(nproc) --dist load -m "frameworks and not alone" --durations 10 $(ARGS) $(FRAMEWORKS) || test $$? -eq 5  # 5: ARGS leave none of these
	$(BIN)/python -m pytest --quiet -m "frameworks and alone" --durations 10 $(ARGS) $(FRAMEWORKS) || test $$? -eq 5
frameworks: $(DEV_STAMP)  ## install two releases of PyTorch into the cache and print where (2 GB to download, once)
	@$(BIN)/python -m tests.cuda_frameworks.environment
check: $(DEV_STAMP)  ## ruff, mypy, import-linter
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports
	$(BIN)/python charts/generate.py --check
kube-programs: $(STAMP)  ## build kubectl, helm, kube-apiserver, ... into the cache and print where (7 min once)
	@$(BIN)/python -m cluster_harness.programs
kind-up: $(STAMP)  ## a cluster with emulated GPUs on this machine: 3 nodes with 8 V100 each (CLUSTER=name)
	$(BIN)/emugpu cluster up --name $(CLUSTER) --nodes 3 --gpus 8 --gpu-type V100
kind-down: $(STAMP)  ## delete it
	$(BIN)/emugpu cluster down --name $(CLUSTER)
e2e: $(DEV_STAMP)  ## the smoke set of the proofs on a real cluster (make kind-up first); about 15 minutes
	EMUGPU_E2E_CLUSTER=$(CLUSTER) e2e/run.sh $(BIN)/python "not long" --timeout 600 $(ARGS)
e2e-long: $(DEV_STAMP)  ## all proofs: 20 kills of each program, ten of an experiment, 200 random pods, reboots; about 75 minutes on two cores
	$(BIN)/emugpu cluster load emugpu-scheduler --name $(CLUSTER)
	$(BIN)/emugpu cluster load emugpu-torch --name $(CLUSTER)
	EMUGPU_E2E_CLUSTER=$(CLUSTER) EMUGPU_E2E_KILLS=20 EMUGPU_E2E_PODS=200 e2e/run.sh $(BIN)/python "long or not long" --timeout 1800 $(ARGS)
bench: $(DEV_STAMP)  ## benchmark tables (they never fail by a clock; ARGS=--quick: small ones); RabbitMQ is compared with if it is installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pika
	$(BIN)/python -m tests.benchmarks $(ARGS)
profiles: $(STAMP)  ## derive the profiles' knots from measurements: make profiles DATA=directory
	$(BIN)/python tools/derive_profiles.py $(DATA)
constraints:  ## write constraints.txt anew: the newest version of every package; run the tests before committing it
	@rm -rf $(VENV) && : > constraints.txt && $(MAKE) setup
	@{ echo "# The versions that CI and 'make setup' install, written by 'make constraints'."; \
	  $(BIN)/python -m pip freeze --exclude-editable; } > constraints.new && mv constraints.new constraints.txt && touch $(STAMP) $(DEV_STAMP)
clean:  ## remove the virtual environment and all output
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
