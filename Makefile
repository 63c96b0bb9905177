# Cohort's targets; `make help` lists them. Needs Go (see go.mod for the version) and nothing else.
SHELL := /usr/bin/env bash
GO ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
# Time for each fuzz target: in `make test`, and in `make fuzz` (for example `make fuzz FUZZTIME=1h`).
SMOKETIME ?= 15s
FUZZTIME ?= 5m
# Minutes of `make soak`, and what decides about its failures (0: the time).
DURATION ?= 10
SEED ?= 0

.PHONY: build up test lint bench fuzz soak help clean

build: ## bin/cohort, one static binary, and links to it under the names of NDB's tools
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/cohort ./cmd/cohort
	@for name in $$(bin/cohort help --links); do ln -sf cohort "bin/$$name"; done
	@echo "built bin/cohort $$(bin/cohort version) and the links beside it"

up: build ## build, then run a two-node, two-replica cluster here until interrupted
	bin/cohort up

test: ## all tests: every package, a race run, and SMOKETIME of each fuzz target
	@GO="$(GO)" scripts/test.sh $(SMOKETIME)

lint: ## formatting, vet, staticcheck
	@GO="$(GO)" scripts/lint.sh $(STATICCHECK)

bench: build ## Go benchmarks of each layer, then whole runs of flexAsynch
	@GO="$(GO)" scripts/bench.sh

fuzz: ## every fuzz target for FUZZTIME each (make fuzz FUZZTIME=1h)
	@GO="$(GO)" scripts/fuzz.sh $(FUZZTIME)

soak: ## DURATION minutes of failures of real processes, one every 5 s, under load (root; make soak DURATION=60)
	CGO_ENABLED=0 $(GO) test -count=1 -v -run '^TestSoak$$' -timeout $$(($(DURATION) + 15))m ./internal/e2e/cluster -soak $(DURATION)m -soak.every 5s -soak.seed $(SEED)

help: ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 9

clean: ## remove what build and tests leave here
	rm -rf bin out
