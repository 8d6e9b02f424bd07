#!/usr/bin/env bash
# e2e/run.sh WHICH [pytest's options]: the cases that WHICH marks ("not long", ...), first those that bear company, side by side,
# then one after the other those marked `alone`. Goes on after a failure; exits 1 if anything failed.
set -u
cd "$(dirname "$0")/.."
which=$1; shift
status=0
run() {  # run MARKS [options]; 5 is pytest's "nothing to run"
  .venv/bin/python -m pytest e2e/cases -m "($which) and $1" --durations 0 --durations-min 5 "${@:2}" || [ $? -eq 5 ] || status=1
}
run "not alone" --numprocesses 4 --dist worksteal "$@"
run "alone" "$@"
exit $status
