#!/usr/bin/env bash
# e2e/run.sh PYTHON WHICH [pytest options]: runs the cases with the marks WHICH ("not long", ...): first, in parallel, those that may run
# beside others, then one by one those marked `alone`. Continues after a failure; exits with 1 if anything failed.
# Each half stores its failures: with --last-failed a half without failures runs nothing, an interrupted one runs completely.
set -u
cd "$(dirname "$0")/.."
python=$1 which=$2; shift 2
status=0
run() {  # run NAME MARKS [options]; pytest exits with 0 if all passed, 1 if some failed, 5 if there was nothing to run
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
