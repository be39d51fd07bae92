# Every target installs what it needs and is quick when that is there. `make help` lists them.
#
# What can be set: GO (the go command), VERSION, RACE=0 (tests without the race detector), TESTFLAGS (more flags for
# go test), FUZZTIME (for each fuzzer), BENCHTIME, SECTIONS (which parts are measured; SECTIONS=list prints them), FAULTRUNS (how often
# each fault), RIVALROUNDS and RIVALREPEATS (and beside other systems: scripts/bench), SEEDS, SEEDBASE and PARALLEL (of the simulator), SIMTIME and
# SIMLEAST (for how long histories are played before the tests, and how many at least: scripts/simulate), VULNDB (a copy of the vulnerability database for govulncheck).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# An ordinary user's PATH lacks the directories of daemons (named, unbound), and a fresh machine's that of Go.
export PATH := $(PATH):/usr/local/go/bin:/usr/local/sbin:/usr/sbin:/sbin
GO ?= go
export GO

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo development)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
DATE    := $(shell git show -s --format=%cI HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)

FUZZTIME  ?= 30s
BENCHTIME ?= 1s
RACE      ?= 1
SECTIONS  ?=
SEEDS     ?= 1000
SEEDBASE  ?= 0
PARALLEL  ?= $(shell nproc)

## demo: build, and watch a cluster of four nodes keep its clients while nodes come and go
.PHONY: demo
demo: build
	@scripts/packages tour
	@bin/holdfast lab run tour
	@echo; echo '   A user with a shell through session gateways while those die: bin/holdfast lab run broker'

## test: all tests, also against real peers, with the race detector; the tests that were skipped are listed at the end
.PHONY: test
test:
	@scripts/packages test
	@RACE=$(RACE) scripts/test $(TESTFLAGS)

## race: the same as test, and fails if the race detector cannot run here
.PHONY: race
race:
	@scripts/packages test
	@RACE=required scripts/test $(TESTFLAGS)

## lab: build, and bring up the default lab: three nodes, a client and a resolver (bin/holdfast lab --help)
.PHONY: lab
lab: build
	@scripts/packages lab
	@bin/holdfast lab up
	@bin/holdfast lab status

## bench: measure the parts, and failovers beside keepalived and CTDB, and write the results to docs/benchmarks.md
.PHONY: bench
bench:
	@scripts/packages bench
	@BENCHTIME=$(BENCHTIME) SECTIONS="$(SECTIONS)" scripts/bench

## model: check the models of the ownership protocol with SPIN, and that they catch broken rules (docs/model)
.PHONY: model
model:
	@scripts/packages model
	@scripts/model

## sim: build, and play SEEDS (1000) clusters in virtual time, from seed SEEDBASE (0) on, PARALLEL at a time (docs/simulator.md)
.PHONY: sim
sim: build
	@bin/holdfast sim --seeds $(SEEDS) --seed-base $(SEEDBASE) --parallel $(PARALLEL)

## lint: format, vet, linters, known vulnerabilities, generated code, module files, scripts, and the binary's size
.PHONY: lint
lint: build
	@scripts/packages lint
	@scripts/lint

## fuzz: run each fuzzer for FUZZTIME (30s)
.PHONY: fuzz
fuzz:
	@FUZZTIME=$(FUZZTIME) scripts/fuzz

## build: the binary, without cgo and stripped, as bin/holdfast
.PHONY: build
build:
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/holdfast ./cmd/holdfast

## man: build, and write the manual pages of every command to build/man (man -M build/man holdfast-status)
.PHONY: man
man: build
	@rm -rf build/man
	@bin/holdfast man build/man/man1
	@echo "manual pages: man -M build/man holdfast-status"

## deb: build, and make a Debian package of it in build; its upgrade replaces a running agent (docs/operating.md, Upgrades)
.PHONY: deb
deb: build
	@scripts/deb bin/holdfast '$(VERSION)' build

## generate: write the generated code anew
.PHONY: generate
generate:
	@$(GO) generate ./...

## clean: remove what was built; labs that run are left alone (bin/holdfast lab down)
.PHONY: clean
clean:
	@rm -rf bin build

## help: this list
.PHONY: help
help:
	@echo 'make TARGET'; sed -n 's/^## \([a-z]*\): \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12
