#!/usr/bin/env bash
# `make lint`: formatting, vet, staticcheck (given as module@version; Go fetches it when first used).
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
export CGO_ENABLED=0
staticcheck=${1:?usage: scripts/lint.sh MODULE@VERSION of staticcheck}

echo "lint: gofmt"
unformatted=$(find . -name '*.go' -not -path './bin/*' -print0 | xargs -0 gofmt -l)
[ -z "$unformatted" ] || { printf 'lint: not formatted, run gofmt -w on:\n%s\n' "$unformatted" >&2; exit 1; }

echo "lint: go vet"
"$go" vet ./...

echo "lint: $staticcheck"
"$go" run "$staticcheck" -version >/dev/null || {
	echo "lint: $staticcheck could not be fetched or built: check the module proxy (go env GOPROXY), or name another version in the Makefile" >&2
	exit 1
}
"$go" run "$staticcheck" ./...
echo "lint: clean"
