#!/usr/bin/env bash
# `make bench`: the Go benchmarks of each layer, then whole runs of flexAsynch against clusters of their own.
# Figures go to out/bench/: go.txt, matrix.md and matrix.json.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
out=$PWD/out/bench
mkdir -p "$out"

echo "== Go benchmarks (out/bench/go.txt)"
CGO_ENABLED=0 "$go" test -run '^$' -bench . -benchmem ./... | grep -v 'no test files' | tee "$out/go.txt"

printf '\n== cohort bench matrix (out/bench/matrix.md, matrix.json)\n'
bin/cohort bench matrix --json "$out/matrix.json" | tee "$out/matrix.md"
echo
echo "bench: figures are in out/bench"
