#!/usr/bin/env bash
# `make bench`: the Go benchmarks of each layer, then whole runs of flexAsynch against clusters of their own.
# Figures go to out/bench/: one JSON file for each run, and go.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
out=$PWD/out/bench
mkdir -p "$out"

echo "== Go benchmarks (out/bench/go.txt)"
CGO_ENABLED=0 "$go" test -run '^$' -bench . -benchmem ./... | grep -v 'no test files' | tee "$out/go.txt"

run() { # name, options of cohort up, options of flexAsynch
	printf '\n== %s: cohort up %s; flexAsynch %s\n' "$1" "$2" "$3"
	# shellcheck disable=SC2086 # the options are words
	bin/cohort up --ephemeral $2 --set Diskless=1 --set DataMemory=2000M \
		--run "flexAsynch $3 --json '$out/$1.json'"
}
one="--data-nodes 1 --replicas 1"
two="--data-nodes 2 --replicas 2"
run one-node        "$one" "-ndbrecord -temp -t 8 -p 512 -r 5 -a 2"
run one-node-small  "$one" "-ndbrecord -temp -t 4 -p 256 -o 100 -a 2"
run one-node-100B   "$one" "-temp -con 2 -t 8 -r 2 -p 64 -ndbrecord -a 25"
run one-node-4KB    "$one" "-temp -con 2 -t 8 -r 2 -p 64 -ndbrecord -a 25 -s 40"
run one-node-8x16   "$one" "-temp -ndbrecord -t 8 -p 16 -o 2000 -a 2"
run one-at-a-time   "$one" "-temp -ndbrecord -t 1 -p 1 -o 20000 -a 2"
run two-nodes       "$two" "-ndbrecord -temp -t 8 -p 512 -r 5 -a 2"
run two-nodes-single "$two" "-temp -ndbrecord -t 1 -p 1 -o 20000 -a 2"
echo
echo "bench: figures are in out/bench"
