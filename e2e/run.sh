#!/usr/bin/env bash
# e2e/run.sh PYTHON WHICH [pytest's options]: the cases that WHICH marks ("not long", ...), first those that bear company, side by
# side, then one after the other those marked `alone`. Goes on after a failure; exits 1 if anything failed.
# Each half remembers its own failures: with --last-failed one that had none runs nothing, and one that was cut short runs whole.
set -u
cd "$(dirname "$0")/.."
python=$1 which=$2; shift 2
status=0
run() {  # run NAME MARKS [options]; of pytest's exit codes 0 is all well, 1 some failed, 5 nothing to run
  local cache=.pytest_cache/e2e-$1 rest=all code
  [ ! -e "$cache/ended" ] || rest=none
  rm -f "$cache/ended"
  "$python" -m pytest e2e/cases -m "($which) and $2" -o cache_dir="$cache" --last-failed-no-failures "$rest" \
    --durations 0 --durations-min 5 "${@:3}"
  code=$?
  case $code in 0 | 1 | 5) mkdir -p "$cache" && touch "$cache/ended" ;; esac
  case $code in 0 | 5) ;; *) status=1 ;; esac
}
run together "not alone" --numprocesses 4 --dist worksteal "$@"
run alone "alone" "$@"
exit $status
