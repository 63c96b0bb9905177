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
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() { "$go" test "./$1" -run '^$' -fuzz "^$2\$" -fuzztime "$each" 2>&1 | tee "$log"; }

echo "fuzz: $(wc -l <<<"$targets") targets, $each each"
while IFS=: read -r package target; do
	echo "fuzz: $package $target"
	# On a loaded machine Go's fuzzer may miss its own deadline at the end; that is no finding, so it is asked again.
	for try in 1 2 3; do
		run "$package" "$target" && continue 2
		if grep -q 'Failing input written' "$log" || ! grep -q 'context deadline exceeded' "$log"; then
			break
		fi
		echo "fuzz: $package $target: try $try: the fuzzer missed its deadline without a finding"
	done
	exit 1
done <<<"$targets"
