# Every target sets up what it needs; `make help` lists them.

PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup bench check test test-clusters test-conformance test-cases test-loads test-judging test-bench \
	test-rest fuzz lint soak perf simulate-clocks nightly systems lock sbom dist clean

# Every command and hundreds of tests start a Python: without compiled modules each takes twice as
# long, and the environment is installed without (tools/setup.py).
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 18

setup: ## virtual environment, Docker engine, server images (quick when nothing is missing)
	@$(PYTHON) -I tools/setup.py

bench: ## run the quick suite on real clusters and write the report; builds the images that it needs
	@$(PYTHON) -I tools/setup.py --no-images
	@$(BIN)/lockbench suite quick

check: lint ## every check and every test that needs no container
	@$(MAKE) --no-print-directory -j3 --output-sync=target test-judging test-bench test-rest

test: export LOCKBENCH_BUDGET := 4
test: lint ## the same, with more that is random, and every test on real clusters
	@$(BIN)/python -m lockbench.clusters.images build go-sidecar jvm-sidecar node-sidecar php-sidecar
	@$(MAKE) --no-print-directory -j7 --output-sync=target \
		test-clusters test-conformance test-cases test-loads test-judging test-bench test-rest

# Clusters and loads mostly wait, so what only computes runs beside them, yields to them, and is shown
# when it is done ("+": not kept back). It yields no further than this, or other work on the machine
# would leave it nothing. Two runs would write the same cache.
CASES := tests/bench tests/cli tests/evidence tests/explore tests/perf tests/soak tests/tools
CONFORMANCE := tests/locks/test_conformance.py tests/locks/test_conformance_gevent.py
CONFORMANCE += tests/locks/test_container_closing.py tests/elsewhere tests/stores

test-clusters:
	+$(BIN)/pytest -m "docker and not long" $(CASES:%=--ignore=%) $(CONFORMANCE:%=--ignore=%)

test-conformance:
	$(BIN)/pytest -p no:cacheprovider -m "docker and not long" $(CONFORMANCE)

test-cases:
	$(BIN)/pytest -p no:cacheprovider -m "docker and not long" $(CASES)

test-loads:
	$(BIN)/pytest -p no:cacheprovider -m "slow and not (docker or long)"

COMPUTING := nice -n 10 $(BIN)/pytest -p no:cacheprovider -m "not (docker or slow or long)"
JUDGING := tests/checker tests/report tests/results
BENCH := tests/bench tests/cli tests/evidence

test-judging:
	$(COMPUTING) $(JUDGING)

test-bench:
	$(COMPUTING) $(BENCH)

test-rest:
	$(COMPUTING) $(patsubst %,--ignore=%,$(JUDGING) $(BENCH))

fuzz: setup ## 500,000 random histories against an exhaustive reference; workloads on real clusters
	LOCKBENCH_BUDGET=200 $(BIN)/pytest -m "random or long"

lint: setup ## style, types and the layers of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: setup ## 200 random schedules of faults and 100 kills; SOAK="--schedules 50 --kills 0"
	@$(BIN)/python -m soak.run $(SOAK)

perf: setup ## measure the bench itself against its anchors
	@$(BIN)/python -m perf.run

simulate-clocks: setup ## what can be seen in the histories of up to 1,000 machines, simulated (docs/clocks.md)
	@$(BIN)/python -m perf.clocks.run

nightly: setup ## the night's suite and the comparison with the pinned baseline; NIGHTLY="--history DIR"
	@$(BIN)/python -m lockbench.evidence.nightly $(NIGHTLY)

systems: setup ## write docs/systems.md and site/; RUNS="runs/a runs/b" are added to what was observed
	@$(BIN)/python -m lockbench.evidence.systems $(RUNS)
	@$(BIN)/lockbench site site

lock: setup ## resolve everything that is downloaded again and write the locks; builds all images
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra dev \
		--generate-hashes --no-header --no-emit-index-url $(LOCK) pyproject.toml -o requirements.lock
	$(BIN)/lockbench library lock $(dir $(wildcard locks/libraries/*/requirements.in))
	$(BIN)/python -m lockbench.clusters.images lock

dist: setup ## the package as people install it, sdist and wheel, into dist/
	rm -rf build dist
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python

sbom: setup ## bills of materials of images and environments (CycloneDX), into sbom/
	@$(BIN)/python -m tools.sbom sbom

clean: ## remove our containers, networks and caches; runs/ and images stay
	-@if [ -x $(BIN)/lockbench ]; then $(BIN)/lockbench clean; fi
	rm -rf .venv .libraries *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
