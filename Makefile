# Tocsin: every command a developer or an operator needs. `make help` lists them.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
WORKERD := tests/cloudflare/.ready

.DEFAULT_GOAL := help
.PHONY: help .venv demo serve test check types fmt bench screenshots conformance lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z.][a-z-]*:.*## / {printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tocsin needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	@echo "setting up .venv (once; about a minute)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.txt
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.venv: $(READY) ## set up the virtual environment only

demo: $(READY) ## a living system against the bundled simulator: no key, no network
	@$(BIN)/tocsin serve --demo

serve: $(READY) ## the service against the real upstreams; settings from the environment or .env
	@$(BIN)/tocsin serve

# Cloudflare's runtime for the tests: workerd, Pyodide, the SDK. Without npm its tests are skipped, and say so.
$(WORKERD): tests/cloudflare/package-lock.json tests/cloudflare/requirements.txt | $(READY)
	@if command -v npm >/dev/null; then \
	  echo "installing workerd and pyodide (once; about 60 MB)" && npm ci --silent --prefix tests/cloudflare && \
	  rm -rf tests/cloudflare/wheels && $(BIN)/python -m pip download --quiet --require-hashes --no-deps --only-binary :all: \
	    -r tests/cloudflare/requirements.txt -d tests/cloudflare/wheels && touch $@; \
	else echo "npm is missing: nothing will be tested on Cloudflare's runtime"; fi

# Tests of the pages need a real browser, and an accessibility audit that runs in it.
AXE := tests/pages/axe/node_modules/.ready
$(AXE): tests/pages/axe/package-lock.json
	@command -v npm >/dev/null || (apt-get update -qq && apt-get install -y -qq npm >/dev/null)
	@npm ci --silent --prefix tests/pages/axe
	@touch $@

/usr/bin/chromium:
	@apt-get update -qq && apt-get install -y -qq chromium >/dev/null

test: $(READY) $(WORKERD) $(AXE) /usr/bin/chromium ## all set-up, then all tests
	@$(BIN)/python -m pytest -n 2 --dist loadgroup

check: $(READY) ## lint, types, import directions, sizes, docs
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python tools/check_sizes.py
	@$(BIN)/python tools/check_docs.py

conformance: $(READY) ## replay workerd's recordings [SCENARIOS=path TRACES=path ONLY=ids REAL_TIME=1 OUT=path]
	@cd tests && ../$(BIN)/python -m conformance \
	  $(if $(SCENARIOS),--scenarios $(abspath $(SCENARIOS))) $(if $(TRACES),--traces $(abspath $(TRACES))) \
	  $(if $(ONLY),--only $(ONLY)) $(if $(REAL_TIME),--real-time) $(if $(OUT),--out $(abspath $(OUT)))

types: $(READY) ## the pages' JSDoc types, made from the shapes
	@$(BIN)/python tools/js_types.py

fmt: $(READY) ## format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

screenshots: $(READY) /usr/bin/chromium ## pictures of the pages in every state
	@PYTHONPATH=tests $(BIN)/python tools/screenshots.py

bench: $(READY) $(WORKERD) /usr/bin/chromium ## measure; installs wrk (apt) and workerd (npm) where they are missing
	@command -v wrk >/dev/null || (apt-get update -qq && apt-get install -y -qq wrk >/dev/null)
	@command -v npm >/dev/null && npm ci --silent --prefix bench/workerd || echo "npm is missing: workerd is not measured"
	@$(BIN)/python bench/measure_runtime.py
	@$(BIN)/python bench/measure_client.py
	@$(BIN)/python bench/measure_prices.py
	@$(BIN)/python bench/measure_status.py
	@$(BIN)/python bench/measure_board.py
	@$(BIN)/python bench/measure_sweep.py
	@PYTHONPATH=tests $(BIN)/python bench/page_tasks.py
	@$(BIN)/python bench/measure_cloudflare.py

lock: ## write all files that pin packages [UPGRADE=1: pin the newest allowed versions]
	@$(PYTHON) tools/lock.py $(if $(UPGRADE),--upgrade)

clean: ## remove what make made
	rm -rf .venv build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache bench/workerd/node_modules \
	  tests/cloudflare/node_modules tests/cloudflare/wheels $(WORKERD) tests/pages/axe/node_modules
