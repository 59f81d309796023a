# Everything here works on a machine with Go, make and git; kubectl is needed only for targets that access your cluster.
# test-system also needs Chromium; generate, test-mcp and test-azure-sdk need npm; test-web needs Node.js. On Debian, root
# gets them installed; elsewhere the target says what to install (hack/need.sh). `make help` lists the targets.

GO ?= go
KUBECTL ?= kubectl
# The image that `make deploy` deploys: by default, that of the latest release.
IMG ?= ghcr.io/fixpoint-dev/fixpoint:$(shell sed -n 's/^appVersion: //p' charts/fixpoint/Chart.yaml)

BIN := $(CURDIR)/bin
CONTROLLER_GEN := $(BIN)/controller-gen
GOLANGCI_LINT := $(BIN)/golangci-lint
GOVULNCHECK := $(BIN)/govulncheck
KUBE_SCORE := $(BIN)/kube-score
KUSTOMIZE := $(BIN)/kustomize

# How many packages each of the targets below builds and tests at a time.
TEST_PARALLEL ?= 2
# In make test they get only the processor time that the suites of the kinds leave.
UNIT_TIMEOUT ?= 20m
CLUSTER_TIMEOUT ?= 30m
FAULTS_TIMEOUT ?= 45m
# The first time, everything is compiled for five platforms, in .ci/run in the processor time that other tests leave.
IMAGE_TIMEOUT ?= 80m

# Copies of the source in different directories share compiled packages and results of tests.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath)

# The race detector needs a C compiler.
C_COMPILER := $(shell command -v $$($(GO) env CC) 2>/dev/null)
RACE := $(if $(C_COMPILER),-race)

.DEFAULT_GOAL := help
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c

##@ General

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*##"; printf "Usage: make \033[36m<target>\033[0m\n"} \
		/^[a-zA-Z_0-9-]+:.*?##/ {printf "  \033[36m%-16s\033[0m %s\n", $$1, $$2} \
		/^##@/ {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)}' $(MAKEFILE_LIST)

##@ Try it

.PHONY: run
run: ## Run a local cluster from source with the manager and the samples (SAMPLES=file: other samples). UNTIL=ready exits once all are Ready.
	@$(if $(filter-out ready,$(UNTIL)),echo "UNTIL is '$(UNTIL)': the only value is ready" >&2; exit 1)
	cd test && $(GO) run ./cmd/run $(if $(UNTIL),-until-ready) $(if $(SAMPLES),-samples "$(abspath $(SAMPLES))")

.PHONY: run-current
run-current: ## Run the manager against your current kubeconfig context; asks first (YES=1: does not).
	@KUBECTL="$(KUBECTL)" hack/context.sh ask "Running the manager, with your own permissions, against"
	$(GO) run ./cmd/manager $(ARGS)

##@ Development

.PHONY: generate
generate: $(CONTROLLER_GEN) $(KUSTOMIZE) ## Generate everything: deep copies, apply configurations, CRDs, roles, dist/install.yaml, the chart's files, the pages of the console; needs npm.
	CONTROLLER_GEN="$(CONTROLLER_GEN)" KUSTOMIZE="$(KUSTOMIZE)" hack/generate.sh

.PHONY: manifests
manifests: generate ## The same as generate: code and manifests have one source.

.PHONY: verify-generate
verify-generate: $(CONTROLLER_GEN) $(KUSTOMIZE) ## Fail if something generated is stale.
	CONTROLLER_GEN="$(CONTROLLER_GEN)" KUSTOMIZE="$(KUSTOMIZE)" hack/generate.sh --check

.PHONY: verify-words
verify-words: ## Fail if something a user reads has a word of hack/words/words.txt; takes seconds.
	$(GO) run ./hack/words

.PHONY: vulncheck
vulncheck: $(GOVULNCHECK) ## Fail if the code reaches a known vulnerability. GOVULNDB=url selects another database.
	@GOVULNCHECK="$(GOVULNCHECK)" hack/vulncheck.sh

# Each module has dependencies of its own.
MODULES := . test test/chart test/identity hack/image hack/web examples/website examples/applicationnamespace
# Runs a command in each module: $(call in-modules,command).
in-modules = @for module in $(MODULES); do (set -x; cd $$module; $(1)); done

.PHONY: fmt
fmt: ## Format the Go code.
	$(call in-modules,$(GO) fmt ./...)

.PHONY: vet
vet: ## Run go vet.
	$(call in-modules,$(GO) vet ./...)

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run the linters, among them the rules on who may import whom.
	$(call in-modules,$(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...)

.PHONY: lint-fix
lint-fix: $(GOLANGCI_LINT) ## Run the linters and fix what they can fix.
	$(call in-modules,$(GOLANGCI_LINT) run --fix --config $(CURDIR)/.golangci.yml ./...)

# The race detector is for code whose own goroutines are under test: the unit tests, the suites that run the
# manager in their process, and the suite of pkg/ssa. The other suites run the manager as a process of its own or
# test none of its goroutines.
RACED_SUITES := ./appservice ./mcpserver ./securestorage
space := $() $()
# The pattern for any of the packages, without ./ before them: $(call any-of,packages).
any-of = $(subst $(space),|,$(patsubst ./%,%,$(1)))
# Unit tests that go through thousands of runs in one goroutine, or of functions without state. The race detector
# makes them take six times as long, so they run without it; all others run with it.
EXHAUSTIVE := RoundTrip|Crash|LostResponses|DeletedAtAnyTime|Thousand|Fleet|AtEachRequest|LeavesNoGrant|LeavesOneGrant|LeaveOneGrant|MayBeInUse
EXHAUSTIVE_PACKAGES := ./internal/conversion ./controllers/securestorage ./pkg/phases/phasestest
# The same for test/ssa.
EXHAUSTIVE_SSA := TestQuietIfAndOnlyIf
# make lint and make vet run all of vet, and on all modules. Without symbols for debuggers, linking takes three quarters of
# the processor time, and it is more than that of most tests.
GO_TEST = $(GO) test -vet=off -ldflags='-s -w'
# Unit tests, and suites with the manager in their process, make much garbage and need little memory: with less frequent
# collections they take a quarter less processor time.
UNIT_TEST = GOGC=400 $(GO_TEST)
# The suites read files of other modules, such as the manifests, whose changes go test does not notice: it would print results
# that are out of date.
FRESH := -count=1
# Runs targets one after the other, also within make -j: $(call one-by-one,targets,prefix). The + before it tells
# make that the line runs make, whose output it then prints as it comes.
one-by-one = $(foreach target,$(1),$(2) $(MAKE) --no-print-directory $(target) &&) true
# Runs two lists of targets side by side: $(call side-by-side,DEADLINES=targets,BACKGROUND=targets).
# In tests of the first list, probes, leader election or drains have deadlines of seconds. They run one target after the
# other, with one cluster at a time: with more, tests miss the deadlines, and the processors have no more to do. Tests of the
# second list have no such deadlines. They run at a lower priority, mostly in the processor time that the others leave while
# they wait.
side-by-side = $(MAKE) --no-print-directory -j2 --output-sync=line test-with-deadlines test-in-background '$(1)' '$(2)'

# Suites that make test-system runs, beside those that have targets of their own.
SYSTEM_SUITES := ./cluster ./cmd/run ./console ./examples ./plan ./plugin ./versions
# Lists the packages of test/ that no other target runs.
SUITES = $(GO) list ./... | grep -Ev '/test/(mcp|azuresdk|e2e|faults)(/|$$$$)|/test/campaign$$$$|/test/(ha|split|deploy|tenant|ssa|$(call any-of,$(RACED_SUITES) $(SYSTEM_SUITES)))$$$$'

.PHONY: test
test: ## Run the unit tests, and on local clusters the suites of the three kinds and of pkg/ssa.
	@echo "make test runs the unit tests, and the suites of the kinds and of pkg/ssa on local clusters. $(NOT_IN_TEST)"
	@$(MAKE) --no-print-directory test-compile
	@$(call side-by-side,DEADLINES=test-suites-raced,BACKGROUND=test-unit-raced test-unit-exhaustive test-suites)
	@echo "make test: all passed. $(NOT_IN_TEST)"

.PHONY: test-system
test-system: ## Test the installed system: configuration, chart, upgrades, several managers, tenants, the console in a browser, the plugin, an identity provider, the examples.
	@hack/need.sh chromium chromium
	@$(MAKE) --no-print-directory test-compile-system
	@$(call side-by-side,DEADLINES=test-ha test-split test-deploy,BACKGROUND=test-system-suites test-chart test-identity)

NOT_IN_TEST := Not run: make test-system (installations, several managers, the console, the plugin, the examples), test-mcp (MCP \
	servers from npm), test-azure-sdk (SDKs of Azure from npm), test-azure (a subscription of Azure), test-image (the image), \
	test-faults and faults (crashes, stale caches, failing calls), test-campaign (specs from the schemas), test-ssa (more \
	random objects), mutation (known bugs), mutate (systematic bugs), fuzz (what others send), e2e (real containers).

# Compiles what make test tests, and links nothing. Beside compilers, which take all processors for minutes, tests miss
# their deadlines. go list compiles in order to find the files with the export data, which are the compiled packages.
COMPILE_TESTS = $(GO) list -export -test -deps

.PHONY: test-compile
test-compile:
	@echo "Compiling the tests: the first time, this takes minutes."
	@$(COMPILE_TESTS) $(RACE) ./... >/dev/null
	@$(COMPILE_TESTS) $(EXHAUSTIVE_PACKAGES) >/dev/null
	@cd test && $(COMPILE_TESTS) $$($(SUITES)) >/dev/null
	@cd test && $(COMPILE_TESTS) $(RACE) $(RACED_SUITES) ./ssa >/dev/null
	@cd examples/website && $(COMPILE_TESTS) $(RACE) ./... >/dev/null
	@cd examples/applicationnamespace && $(COMPILE_TESTS) $(RACE) ./... >/dev/null

.PHONY: test-compile-system
test-compile-system:
	@echo "Compiling the tests: the first time, this takes minutes."
	@cd test && $(COMPILE_TESTS) ./ha ./split ./deploy ./tenant $(SYSTEM_SUITES) >/dev/null
	@cd test/chart && $(COMPILE_TESTS) ./... >/dev/null
	@cd test/identity && $(COMPILE_TESTS) ./... >/dev/null

.PHONY: test-with-deadlines
test-with-deadlines:
	+@$(call one-by-one,$(DEADLINES))

.PHONY: test-in-background
test-in-background:
	+@$(call one-by-one,$(BACKGROUND),nice -n 10)

.PHONY: test-unit
test-unit: ## Run the tests that need no cluster.
	@$(MAKE) --no-print-directory -j2 --output-sync=line test-unit-raced test-unit-exhaustive

.PHONY: test-unit-raced
test-unit-raced:
	@$(if $(RACE),,echo "No C compiler was found: testing without the race detector.")
	$(UNIT_TEST) $(RACE) -p $(TEST_PARALLEL) -timeout $(UNIT_TIMEOUT) \
		$$($(GO) list ./... | grep -Ev '/($(call any-of,$(EXHAUSTIVE_PACKAGES)))$$$$')
	$(UNIT_TEST) $(RACE) -p $(TEST_PARALLEL) -timeout $(UNIT_TIMEOUT) -skip '$(EXHAUSTIVE)' $(EXHAUSTIVE_PACKAGES)
	cd examples/website && $(UNIT_TEST) $(RACE) -timeout $(UNIT_TIMEOUT) ./...
	cd examples/applicationnamespace && $(UNIT_TEST) $(RACE) -timeout $(UNIT_TIMEOUT) ./...

.PHONY: test-unit-exhaustive
test-unit-exhaustive:
	$(UNIT_TEST) -p $(TEST_PARALLEL) -timeout $(UNIT_TIMEOUT) -run '$(EXHAUSTIVE)' $(EXHAUSTIVE_PACKAGES)

.PHONY: test-ha
test-ha:
	cd test && $(GO_TEST) $(FRESH) -timeout $(CLUSTER_TIMEOUT) ./ha

.PHONY: test-split
test-split:
	cd test && $(GO_TEST) $(FRESH) -timeout $(CLUSTER_TIMEOUT) ./split

.PHONY: test-suites-raced
test-suites-raced:
	@$(if $(RACE),,echo "No C compiler was found: testing without the race detector.")
	cd test && $(UNIT_TEST) $(FRESH) $(RACE) -p 1 -timeout $(CLUSTER_TIMEOUT) $(RACED_SUITES)

.PHONY: test-deploy
test-deploy:
	cd test && $(GO_TEST) $(FRESH) -p 1 -timeout $(CLUSTER_TIMEOUT) ./deploy ./tenant

.PHONY: test-suites
test-suites:
	cd test && $(UNIT_TEST) $(FRESH) -timeout $(CLUSTER_TIMEOUT) -run '$(EXHAUSTIVE_SSA)' ./ssa
	cd test && $(UNIT_TEST) $(FRESH) $(RACE) -timeout $(CLUSTER_TIMEOUT) -skip '$(EXHAUSTIVE_SSA)' ./ssa
	cd test && $(GO_TEST) $(FRESH) -p $(TEST_PARALLEL) -timeout $(CLUSTER_TIMEOUT) $$($(SUITES))

.PHONY: test-system-suites
test-system-suites:
	cd test && $(GO_TEST) $(FRESH) -p $(TEST_PARALLEL) -timeout $(CLUSTER_TIMEOUT) $(SYSTEM_SUITES)

.PHONY: test-ssa
test-ssa: ## Compare the applies of 2,000 random objects with what the API server does; make test takes 650, others in each run.
	cd test && FIXPOINT_CASES=2000 $(GO_TEST) $(FRESH) -v -timeout $(CLUSTER_TIMEOUT) -run '$(EXHAUSTIVE_SSA)' ./ssa

.PHONY: test-chart
test-chart: ## Run the tests of the Helm chart, the alerts and the dashboard.
	cd test/chart && $(GO_TEST) $(FRESH) -timeout $(CLUSTER_TIMEOUT) ./...

.PHONY: test-identity
test-identity: ## Run the tests of spec.authorization with an identity provider.
	cd test/identity && $(GO_TEST) $(FRESH) -timeout $(UNIT_TIMEOUT) ./...

# Without the race detector: with it, crashing and restarting the manager thousands of times takes days.
.PHONY: test-faults
test-faults: ## Crash the manager at every call and inject a share of all other faults. FAULTS_SEED=n selects the share.
	cd test && $(GO) test $(FRESH) -v -timeout $(FAULTS_TIMEOUT) ./faults | grep --line-buffered -Ev '^ *(=== |--- PASS)'

.PHONY: faults
faults: ## Run every fault campaign in full, which takes about two hours on two cores.
	cd test && FAULTS_PAIRS=100 FAULTS_STALE=100 FAULTS_ERRORS=100 FAULTS_SIMULATIONS=5000 FAULTS_CLEAN_SIMULATIONS=300 \
		$(GO) test $(FRESH) -v -timeout 5h ./faults | grep --line-buffered -Ev '^ *(=== |--- PASS)'

# Without the race detector, which triples the time.
.PHONY: test-campaign
test-campaign: ## Test invalid and valid specs derived from the CRDs' schemas. FIXPOINT_CAMPAIGN=10 tests ten times as many.
	cd test && $(GO) test $(FRESH) -v -timeout 2h ./campaign | grep --line-buffered -Ev '^ *(=== |--- PASS)'

.PHONY: mutation
mutation: ## Apply known bugs to the code, one at a time, and report which test detects each. MUTATIONS="name..." selects some.
	cd test && $(GO) run ./cmd/mutation $(MUTATIONS)

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (30s).
	GO="$(GO)" FUZZTIME="$(or $(FUZZTIME),30s)" hack/fuzz.sh

# Results are kept, so that a run goes on where it was interrupted, as long as neither code nor tests change.
.PHONY: mutate
mutate: ## Change the code systematically and list the changes that no test detects. PACKAGES="internal/lease ..." and SINCE=commit select some, SURVIVORS=1 those that survived the last run, WITHIN=5m limits the time.
	cd test && $(GO) run ./cmd/mutate -results $(BIN)/mutate $(if $(SINCE),-since "$(SINCE)") $(if $(SURVIVORS),-survivors) $(if $(WITHIN),-within $(WITHIN)) $(PACKAGES)

.PHONY: test-mcp
test-mcp: ## Run the tests with MCP servers from npm, through the bridge; needs npm.
	@hack/need.sh npm nodejs npm
	cd test && $(GO) test $(FRESH) $(RACE) -timeout $(CLUSTER_TIMEOUT) ./mcp/...

.PHONY: test-azure-sdk
test-azure-sdk: ## Test the fake cloud with the SDKs that Azure publishes for JavaScript; needs npm.
	@hack/need.sh npm nodejs npm
	cd test && $(GO) test $(FRESH) -timeout $(CLUSTER_TIMEOUT) ./azuresdk

.PHONY: test-azure
test-azure: ## Run the life of a SecureStorage in a subscription of Azure, and remove everything again; needs credentials. See docs/azure.md.
	cd test && $(GO) test $(FRESH) -v -timeout 2h ./azure -run '^TestLife' -azure

.PHONY: test-web
test-web: ## Test the functions of the console's pages that need no browser; needs Node.js. The tests in test/console drive the pages in Chromium.
	@hack/need.sh node nodejs
	cd hack/web && $(GO) test $(FRESH) ./...

.PHONY: test-image
test-image: $(GOVULNCHECK) ## Run the tests of the image and of a release, which is built twice.
	cd hack/image && $(GO) test $(FRESH) -timeout $(IMAGE_TIMEOUT) ./...

.PHONY: e2e
e2e: ## Run the end-to-end tests on a node of their own (Linux, root) or on the current cluster (E2E_CLUSTER=current). See docs/e2e.md.
	GO="$(GO)" hack/e2e.sh -v $(ARGS)

.PHONY: e2e-images
e2e-images: ## Write the images that make e2e needs to bin/e2e, for loading into the nodes of your cluster.
	@mkdir -p $(BIN)/e2e
	cd test && E2E_IMAGES_TO=$(BIN)/e2e $(GO) test $(FRESH) ./e2e -timeout $(CLUSTER_TIMEOUT)

.PHONY: bench-bridge
bench-bridge: ## Load the bridge for ten minutes with honest and hostile clients and 1,000 sessions; prints memory, descriptors and latencies.
	$(GO) test $(FRESH) ./internal/bridge -run '^TestLoad$$' -v -timeout 30m -load 10m -load-sessions 1000

.PHONY: bench
bench: ## Measure the libraries and one reconcile. WRITE=file also writes the table to a file.
	cd test && $(GO) run ./cmd/bench $(if $(WRITE),-write "$(abspath $(WRITE))")

.PHONY: bench-cost
bench-cost: ## Measure AppServices beside a textbook controller. ARGS="-n 100 -only=create,delete" selects, WRITE=file also writes the tables to a file.
	cd test && $(GO) run ./cmd/bench-cost $(ARGS) $(if $(WRITE),-write "$(abspath $(WRITE))")

.PHONY: bench-scale
bench-scale: ## Measure 10,000 AppServices, 2,000 MCPServers and 2,500 SecureStorages, which takes half an hour or more. ARGS="-appservices 1000 -only=appservices" selects, SVG=file draws memory and latency.
	cd test && $(GO) run ./cmd/bench-scale $(ARGS) $(if $(SVG),-svg "$(abspath $(SVG))") $(if $(WRITE),-write "$(abspath $(WRITE))")

.PHONY: bench-mcpserver
bench-mcpserver: ## Measure 300 MCPServers against a client without an operator. WRITE=file also writes the table to a file.
	cd test && $(GO) run ./cmd/bench-mcpserver $(if $(WRITE),-write "$(abspath $(WRITE))")

.PHONY: bench-split
bench-split: ## Divide 3,000 AppServices among three releases, and move namespaces among releases 200 times.
	cd test && FIXPOINT_SPLIT_OBJECTS=3000 FIXPOINT_SPLIT_MOVES=200 $(GO) test $(FRESH) -v -timeout 30m ./split -run 'Divide|Moved'

##@ Build

.PHONY: build
build: ## Build the manager, the console and the kubectl plugin into bin/.
	$(GO) build -o $(BIN)/manager ./cmd/manager
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(BIN)/console ./cmd/console
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(BIN)/kubectl-fixpoint ./cmd/kubectl-fixpoint

.PHONY: image
image: ## Build the image in bin/image, without a container engine: an OCI layout and archives for docker load. PUSH=name pushes it.
	cd hack/image && $(GO) run . build -source ../.. -out $(BIN)/image $(if $(filter file,$(origin IMG)),,-tag $(IMG)) $(if $(PUSH),-push $(PUSH)) $(if $(VERSION),-version $(VERSION))

.PHONY: release
release: $(GOVULNCHECK) ## Write everything that a release holds to dist/release/VERSION, from a clean commit. See docs/releasing.md.
	@GOVULNCHECK="$(GOVULNCHECK)" hack/vulncheck.sh --strict
	@$(MAKE) --no-print-directory reproduce

.PHONY: reproduce
reproduce: ## Build the release VERSION again from its tag, also once vulnerabilities in it are known. See docs/releasing.md.
	@cd hack/image && $(GO) run . release -source ../.. -out $(CURDIR)/dist/release -version "$(VERSION)"

.PHONY: sign
sign: ## Sign the release in dist/release/VERSION, with KEY=file, or with the identity of the CI job through cosign.
	@cd hack/image && $(GO) run . sign $(if $(KEY),-key "$(abspath $(KEY))") "$(CURDIR)/dist/release/$(VERSION)"

##@ On your cluster

.PHONY: install
install: $(KUSTOMIZE) ## Install the CRDs into the current context.
	@KUBECTL="$(KUBECTL)" hack/context.sh name "Installing the CRDs into"
	$(KUSTOMIZE) build config/default | $(ONLY_CRDS) | $(KUBECTL) apply --server-side -f -

# Selects the CRDs, whose conversion webhook is that of `make deploy`.
ONLY_CRDS := awk '$$0 == "---" { next } /^apiVersion: / { crd = /apiextensions/; if (crd) print "---" } crd'

.PHONY: uninstall
uninstall: $(KUSTOMIZE) ## Remove the CRDs, and with them every object of their kinds, from the current context; asks first.
	@KUBECTL="$(KUBECTL)" hack/context.sh ask "Removing the CRDs, and every object of their kinds, from"
	$(KUSTOMIZE) build config/crd | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: deploy
deploy: $(KUSTOMIZE) ## Deploy CRDs, roles and the manager (IMG=...) to the current context.
	@KUBECTL="$(KUBECTL)" hack/context.sh name "Deploying $(IMG) to"
	@$(call with-image) && $(KUSTOMIZE) build "$$work/config/default" | $(KUBECTL) apply --server-side -f -

.PHONY: undeploy
undeploy: $(KUSTOMIZE) ## Remove everything that deploy created; asks first.
	@KUBECTL="$(KUBECTL)" hack/context.sh ask "Removing every object of Fixpoint's kinds, then the manager and the CRDs, from"
	# The objects first: only a running manager removes their finalizers.
	# A failure to list the CRDs stops the assignment, but not a loop over the output.
	crds=$$($(KUBECTL) get crd -o name | sed -n 's#.*/\(.*\.fixpoint\.dev\)$$#\1#p'); \
	for crd in $$crds; do \
		$(KUBECTL) delete "$$crd" --all --all-namespaces; \
	done
	$(KUSTOMIZE) build config/default | $(KUBECTL) delete --ignore-not-found -f -

# Sets the image in a copy, so that deploying leaves no change in the tree.
define with-image
work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && cp -r config "$$work/" && \
	(cd "$$work/config/manager" && $(KUSTOMIZE) edit set image controller=$(IMG))
endef

##@ Tools

.PHONY: tools
tools: $(CONTROLLER_GEN) $(GOLANGCI_LINT) $(GOVULNCHECK) $(KUBE_SCORE) $(KUSTOMIZE) ## Build the pinned tools into bin/.

# Each tool has a module of its own, so that none changes another's dependencies.
# A tool is built again only when its pin has changed.
$(BIN)/%: hack/tools/%/go.mod hack/tools/%/go.sum
	@echo "Building $* into bin/ (once, until its pin changes)"
	@cd hack/tools/$* && $(GO) build -o $@ tool
	@touch $@
