# Every target sets up what it needs; `make help` lists them.

PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup bench test test-clusters test-rest fuzz lint soak perf nightly systems lock clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /\1\t/' | expand -t 12

setup: ## virtual environment, Docker engine, server images (quick when nothing is missing)
	@$(PYTHON) -I bench/setup.py

bench: setup ## run the quick suite on real clusters and write the report
	@$(BIN)/lockbench suite quick

test: lint ## every check and every test, the ones on real clusters included
	@$(BIN)/python -m clusters.images build go-sidecar jvm-sidecar
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-clusters test-rest

# Clusters and loads mostly wait, so what only computes runs beside them, yields to them, and is shown
# when it is done ("+": not kept back). Two runs would write the same cache.
test-clusters:
	+$(BIN)/pytest -m "(docker or slow) and not long"

test-rest:
	nice -n 19 $(BIN)/pytest -p no:cacheprovider -m "not (docker or slow or long)"

fuzz: setup ## 500,000 random histories against an exhaustive reference; workloads on real clusters
	$(BIN)/pytest -m long

lint: setup ## style, types and the layers of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: setup ## play 200 random schedules of faults in a row; everything must be healed after each
	@$(BIN)/python -m bench.soak

perf: setup ## measure the bench itself against its anchors
	@$(BIN)/python -m bench.perf

nightly: setup ## the night's suite and the comparison with the baseline; NIGHTLY="--base REF --new REF"
	@$(BIN)/python -m bench.nightly $(NIGHTLY)

systems: setup ## write docs/systems.md; RUNS="runs/a runs/b" are added to what was observed
	@$(BIN)/python -m bench.systems $(RUNS)

lock: setup ## resolve pyproject.toml into requirements.lock again
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra dev \
		--generate-hashes --no-header --no-emit-index-url pyproject.toml -o requirements.lock
	for wanted in locks/libraries/*/requirements.in; do $(BIN)/uv pip compile --quiet --universal \
		--python-version 3.11 --generate-hashes --no-header --no-emit-index-url $$wanted \
		-o $${wanted%.in}.txt || exit 1; done

clean: ## remove our containers, networks and caches; runs/ and images stay
	-@if [ -x $(BIN)/lockbench ]; then $(BIN)/lockbench clean; fi
	rm -rf .venv .libraries *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
