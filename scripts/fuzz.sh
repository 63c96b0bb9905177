#!/usr/bin/env bash
# Runs every fuzz target of the tree for the given time each: scripts/fuzz.sh 15s
# The targets are found by their names, so a new one needs no registration.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
each=${1:?usage: scripts/fuzz.sh TIME, for example 15s}

targets=$(grep -rHoE --include='*_test.go' --exclude-dir=testdata '^func Fuzz[A-Za-z0-9_]*' . |
	sed -E 's#^\./(.*)/[^/]*:func (Fuzz.*)$#\1:\2#' | sort -u)
[ -n "$targets" ] || { echo "fuzz: no target found: a fuzz test is a func FuzzName in a _test.go file" >&2; exit 1; }
echo "fuzz: $(wc -l <<<"$targets") targets, $each each"
while IFS=: read -r package target; do
	echo "fuzz: $package $target"
	"$go" test "./$package" -run '^$' -fuzz "^$target\$" -fuzztime "$each"
done <<<"$targets"
