#!/usr/bin/env bash
# `make test`: every package's tests, the runtime packages once more under the race detector, and a short
# run of each fuzz target. The lines of the first step are printed again at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
smoke=${1:-15s}
say() { printf '\n== %s\n' "$*"; }

mkdir -p out
say "1 of 3: tests of all packages"
CGO_ENABLED=0 "$go" test -timeout 20m ./... 2>&1 | tee out/test.txt

# Only these packages have more than one goroutine on the same data; the core is single-threaded by design.
runtime=()
for package in internal/host internal/mgm ndb; do
	[ -d "$package" ] && runtime+=("./$package/...")
done
if ! command -v "${CC:-gcc}" >/dev/null; then
	say "2 of 3: race detector: LEFT OUT, it needs a C compiler and there is no ${CC:-gcc} here"
elif [ ${#runtime[@]} -eq 0 ]; then
	say "2 of 3: race detector: no runtime package yet"
else
	say "2 of 3: race detector on ${runtime[*]}"
	CGO_ENABLED=1 "$go" test -race -timeout 20m "${runtime[@]}"
fi

say "3 of 3: each fuzz target for $smoke"
scripts/fuzz.sh "$smoke"

say "all passed; the tests of step 1 again:"
cat out/test.txt
