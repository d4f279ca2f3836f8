#!/usr/bin/env bash
# Runs every fuzz target of the module, one after another, each for the time that is given, such as 30s.
set -euo pipefail
limit=$1

grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -r -n 1 dirname | sort -u | while read -r dir; do
  for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$dir"/*_test.go); do
    echo "$dir: $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$limit" "$dir" </dev/null
  done
done
