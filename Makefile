# What to begin with is in README.md.
#
# Nothing here is rebuilt needlessly: Go's build cache decides for our own code,
# and the control plane is cached by content (examples/devcluster/build.sh).

SHELL := /bin/bash
BIN := $(CURDIR)/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

export DEVCLUSTER := $(BIN)/devcluster
# Static programs; and what vet, lint and build compile is compiled once.
export CGO_ENABLED := 0
# No program contains paths of this checkout: another one finds in the build cache what
# this one has compiled.
export GOFLAGS := $(GOFLAGS) -trimpath

.PHONY: build devcluster tofu prerequisites demo test check lint devcluster-test chaos bench pictures image release generate release-contract clean help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

# What else a target needs is built with them: its packages are loaded, compiled and
# linked side by side with theirs.
PROGRAMS := ./piped/cmd/piped ./piped/cmd/pipectl

build: ## build bin/piped and bin/pipectl
	@mkdir -p $(BIN)
	go build -ldflags "$(LDFLAGS)" -o $(BIN)/ $(PROGRAMS)

devcluster: ## build bin/devcluster, a real Kubernetes control plane (minutes the first time)
	@mkdir -p $(BIN)
	@examples/devcluster/build.sh $(DEVCLUSTER)

tofu: ## build bin/tofu, OpenTofu for the tests and the demo (minutes the first time)
	@examples/tofu/build.sh $(BIN)

demo: PROGRAMS += ./examples/demo
# Only a kubeconfig of the command line is used, never one of the environment.
OWN := $(if $(filter command,$(firstword $(origin KUBECONFIG))),$(KUBECONFIG))
demo: build $(if $(OWN),,devcluster tofu) ## show the agent at work; ONCE=1 ends after the script, KUBECONFIG=FILE uses your cluster
	@exec $(BIN)/demo -bin $(BIN) $(if $(ONCE),-once) $(if $(OWN),-kubeconfig '$(OWN)' $(if $(IMAGE),-image '$(IMAGE)' -tags '$(TAGS)'))

RELEASE = go build -o $(BIN)/release ./examples/release && exec $(BIN)/release -version '$(VERSION)' -bin $(BIN)
image: ## write the agent's image for amd64 and arm64 into dist/; PUSH=REF pushes it, too
	@mkdir -p $(BIN)
	@$(RELEASE) $(if $(PUSH),-push '$(PUSH)') image

release: ## make everything of a release in dist/VERSION; VERSION=v1.2.3
	@mkdir -p $(BIN)
	@$(RELEASE) all

CHECKS = go build -o $(BIN)/checks ./examples/checks && exec $(BIN)/checks -bin $(BIN)
test: prerequisites ## everything that must pass: lint, and all tests against real servers; logs in bin/logs
	@$(CHECKS) all

check: prerequisites ## before a commit: lint, and the tests that the change since BASE (default HEAD) reaches, but for the end-to-end ones
	@$(CHECKS) -base $(BASE) change
BASE ?= HEAD

prerequisites: ## install what the tests need, or name it
	@.ci/prerequisites

lint: ## vet, gofmt, staticcheck, protocol lint, stale generated code and docs
	go vet ./...
	@unformatted=$$(gofmt -l $$(git ls-files '*.go' | grep -v '\.pb\.go$$')); \
	  if [ -n "$$unformatted" ]; then echo "not gofmt-clean, run gofmt -w on:" $$unformatted; exit 1; fi
	go tool -modfile=proto/lint.mod staticcheck ./...
	proto/check.sh
	piped/web/page/check.sh
	go run ./examples/docs -check
	go run ./examples/install -check

devcluster-test: devcluster ## the tests of the development cluster itself
	go -C examples/devcluster vet ./...
	go -C examples/devcluster test -timeout 10m ./...

# How much, beside PIPED_CHAOS_SEED, which repeats a run.
CHAOS ?= kills=100,deployments=200,applications=20
OUTAGE ?= 30s
ROLLOUTS ?= rollouts=2000,applications=50
FOREIGN ?= rollouts=1000,workloads=28
QUIET ?= 10m
PULL_REQUESTS ?= 50
REPLICAS ?= deployments=200,applications=20
SOAK ?= 30m
ONLY ?= Chaos|Fault|RolloutChaos|ForeignRollouts|QuietFleet|ManyPullRequests|PreviewKilled|ReplicaChaos|Soak
chaos: PROGRAMS += ./examples/bench
chaos: prerequisites build devcluster ## kill the agent at random moments and take away what it needs, and leave it alone; CHAOS, OUTAGE, ROLLOUTS, FOREIGN, QUIET, PULL_REQUESTS, REPLICAS, SOAK say how much, ONLY=<regexp> which
	PIPED_CHAOS='$(CHAOS)' PIPED_OUTAGE='$(OUTAGE)' PIPED_ROLLOUT_CHAOS='$(ROLLOUTS)' PIPED_FOREIGN_ROLLOUTS='$(FOREIGN)' PIPED_QUIET='$(QUIET)' PIPED_PULL_REQUESTS='$(PULL_REQUESTS)' PIPED_REPLICA_CHAOS='$(REPLICAS)' \
	  go test -count=1 -v -timeout 80m -run '^Test($(ONLY))' ./piped/app ./examples/replicachaos
	@if echo Soak | grep -qE '^($(ONLY))'; then exec $(BIN)/bench -bin $(BIN) -run '^soak$$' -soak '$(SOAK)'; fi

bench: PROGRAMS += ./examples/bench
bench: prerequisites build devcluster ## print the figures; BENCH=<regexp> selects
	@exec $(BIN)/bench -bin $(BIN) -run '$(BENCH)'

pictures: prerequisites devcluster ## renew the pictures of docs/page, in Chromium
	PIPED_PICTURES=$(CURDIR)/docs/page/images go test -count=1 -timeout 20m -run '^TestPage$$/^together$$/^(views|dialogs)$$' ./piped/web/page/browsertest

generate: ## regenerate the wire types from the .proto files, the page from its templates, the generated texts of docs/, and examples/install
	proto/generate.sh
	go tool -modfile=proto/tools.mod templ generate -include-version=false -path piped/web/page -log-level warn
	go run ./examples/docs
	go run ./examples/install

release-contract: ## make the .proto files as they are the contract that later versions keep; when a release is cut
	proto/release.sh

clean: ## remove what was built here
	rm -rf $(BIN) dist
