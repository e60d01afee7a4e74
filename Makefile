# Tocsin: every command a developer or an operator needs. `make help` lists them.
PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes
OURS := --disable-pip-version-check install --quiet --no-deps --no-build-isolation \
  --editable packages/holdfast --editable packages/stacks-simulator --editable .
RUNTIME := .venv/.runtime
DEV := .venv/.dev
WORKERD := tests/cloudflare/.ready
WRANGLER := deploy/cloudflare/node_modules/.ready
AXE := tests/pages/axe/node_modules/.ready
# For programs that use support modules of the tests.
TESTING = PYTHONPATH=$(CURDIR)/tests:$(CURDIR)/packages/holdfast/tests
# A worker runs one test file at a time, so tests that share a runtime start it once. conftest sets the order.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Commands and tests start many processes; without bytecode, each would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help .venv demo serve docs quick test pythons odd-place fuzz mcp client soak sim digests month mutants mutation check types fmt bench screenshots cloudflare conformance lock walks rooms clean npm chromium tools

help: ## show this list
	@awk -F ':.*## ' '/^[a-z.][a-z-]*:.*## / {printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Only what the service needs to run, so that a first try does not wait for anything else.
$(RUNTIME): requirements.txt pyproject.toml packages/holdfast/pyproject.toml packages/stacks-simulator/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tocsin needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	@echo "setting up .venv (once; about 20 seconds)"
	@$(PYTHON) -m venv .venv
	@$(PIP) -r requirements.txt
	@$(BIN)/python -m pip $(OURS)
	@touch $@

$(DEV): requirements-dev.txt $(RUNTIME)
	@echo "adding the development tools to .venv (once; about 30 seconds)"
	@$(PIP) -r requirements-dev.txt
	@touch $@

.venv: $(DEV) ## set up the virtual environment only

demo: $(RUNTIME) ## run the whole service against the bundled simulator: no key, no network [BAD_TIMES=1]
	@$(BIN)/tocsin serve --demo $(if $(BAD_TIMES),--bad-times)

serve: $(RUNTIME) ## run the service against the real upstreams; settings from the environment or .env
	@$(BIN)/tocsin serve

# Tests of the pages need a browser; those on Cloudflare's runtime and the accessibility audit need npm. Both are
# installed if possible. Otherwise these tests are skipped, and a message states what is missing.
APT := command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq
SKIPPED := its tests will be skipped

npm:
	@command -v npm >/dev/null || ($(APT) npm >/dev/null) || echo "npm is missing: $(SKIPPED)"

chromium:
	@[ -n "$(CHROMIUM)" ] || (command -v chromium-headless-shell || ($(APT) chromium-headless-shell) || \
	  command -v chromium || command -v chromium-browser || command -v google-chrome || \
	  ($(APT) chromium)) >/dev/null || echo "Chromium is missing: $(SKIPPED)"

# The programs that check the files in deploy/: units, alerts and proxies.
tools:
	@(command -v systemd-analyze && command -v promtool && command -v caddy && command -v nginx) >/dev/null || \
	  ($(APT) --no-install-recommends systemd prometheus caddy nginx-light >/dev/null) || \
	  echo "systemd-analyze, promtool, caddy or nginx is missing: $(SKIPPED)"

$(WORKERD): tests/cloudflare/package-lock.json tests/cloudflare/requirements.txt | $(DEV) npm
	@! command -v npm >/dev/null || { \
	  echo "installing workerd and pyodide (once; about 60 MB)" && npm ci --silent --prefix tests/cloudflare && \
	  rm -rf tests/cloudflare/wheels && $(BIN)/python -m pip download --quiet --require-hashes --no-deps \
	    --only-binary :all: -r tests/cloudflare/requirements.txt -d tests/cloudflare/wheels && touch $@; \
	} || echo "workerd could not be installed: $(SKIPPED)"

$(WRANGLER): deploy/cloudflare/package-lock.json | npm
	@! command -v npm >/dev/null || { echo "installing wrangler (once; about 60 MB)" && \
	  npm ci --silent --prefix deploy/cloudflare && touch $@; } || echo "wrangler could not be installed: $(SKIPPED)"

$(AXE): tests/pages/axe/package-lock.json | npm
	@! command -v npm >/dev/null || { npm ci --silent --prefix tests/pages/axe && touch $@; } || \
	  echo "axe-core could not be installed: $(SKIPPED)"

quick: $(DEV) ## run the fast tests of every part: less than a minute, no npm, no browser, no root
	@$(PYTEST) -m "not slow" --ignore tests/pages $(if $(PROFILE),--hypothesis-profile $(PROFILE))

test: WORKERS := 3
test: $(DEV) $(WORKERD) $(WRANGLER) $(AXE) chromium tools ## set everything up, then run all tests
	@$(PYTEST)

pythons: $(DEV) ## run the fast tests on every other Python of this machine, and name those that are absent
	@$(BIN)/python tools/other_pythons.py

odd-place: $(DEV) ## run the fast tests of the last commit in an odd place: private, blank and umlaut, other zone, few open files
	@tools/odd-place

.venv-fuzz: tools/requirements-fuzz.txt
	@$(PYTHON) -m venv $@
	@$@/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r $<
	@touch $@

fuzz: $(DEV) $(WORKERD) .venv-fuzz ## send generated requests to the whole API, on both platforms [EXAMPLES=60 SEED=1]
	@$(TESTING) $(BIN)/python tools/fuzz_api.py $(if $(EXAMPLES),--examples $(EXAMPLES)) $(if $(SEED),--seed $(SEED))

.venv-mcp: tools/requirements-mcp.txt
	@$(PYTHON) -m venv $@
	@$@/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r $<
	@touch $@

mcp: .venv-mcp ## ask a running service an agent's questions, with MCP's official client [TOCSIN_URL=]
	@.venv-mcp/bin/python tools/try_mcp.py

.venv-client: tools/requirements-client.txt
	@$(PYTHON) -m venv $@
	@$@/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r $<
	@touch $@

client: $(RUNTIME) .venv-client ## validate /openapi.json, generate a client from it, and use a demo with it
	@.venv-client/bin/python tools/try_client.py

.venv-mutation: requirements-dev.txt tools/requirements-mutation.txt
	@$(PYTHON) -m venv $@
	@$@/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes $(addprefix -r ,$^)
	@$@/bin/python -m pip $(OURS)
	@touch $@

mutation: .venv-mutation ## check whether the tests would notice a bug: PACKAGE=upstream [MODULE=budget]
	@$(if $(PACKAGE),,$(error name a package: make mutation PACKAGE=upstream))
	@nice -n 15 .venv-mutation/bin/python -m tools.mutation $(PACKAGE) $(if $(MODULE),--module $(MODULE))

soak: $(DEV) ## send traffic, abuse and faults while the scheduler runs; prints resource use [MINUTES=10]
	@$(TESTING) $(BIN)/python bench/soak.py $(if $(MINUTES),--minutes $(MINUTES))

sim: $(DEV) ## simulate bad days of the whole service in virtual time: one history by its seed, or many [SEED=7 LONG=1 DAYS=1000 FIRST=1 JOBS=1 EVERY_CALL=1]
	@cd tests && $(TESTING) ../$(BIN)/python -m simulation \
	  $(if $(SEED),--seed $(SEED)) $(if $(DAYS),--days $(DAYS)) $(if $(FIRST),--first $(FIRST)) $(if $(JOBS),--jobs $(JOBS)) \
	  $(if $(LONG),--long) $(if $(EVERY_CALL),--every-call $(EVERY_CALL))

digests: $(DEV) ## write digests of simulated histories, or compare two files of them [OUT=a.json SEEDS=200 JOBS=2 COMPARE="a.json b.json"]
	@cd tests && $(TESTING) ../$(BIN)/python -m simulation.digests $(if $(OUT),--out $(abspath $(OUT))) $(if $(SEEDS),--seeds $(SEEDS)) \
	  $(if $(JOBS),--jobs $(JOBS)) $(if $(COMPARE),--compare $(abspath $(COMPARE)))

mutants: $(DEV) ## apply each deliberate bug of tools/mutants to a copy: a test must catch it [ONLY=name JOBS=1]
	@$(BIN)/python tools/try_mutants.py --only "$(ONLY)" --jobs $(or $(JOBS),1)

docs: $(DEV) ## write the lists of docs/ that follow from the code: settings, commands, routes, metrics, events
	@$(BIN)/python tools/write_docs.py

walks: $(DEV) ## count the files that a price, a swap and a pause pass on their way [VERBOSE=1]
	@$(TESTING) $(BIN)/python tools/walks.py

rooms: $(DEV) ## draw the rooms and the imports between them: docs/rooms.svg
	@$(BIN)/python tools/draw_rooms.py

month: $(DEV) ## compare Tocsin with a model of the reference over a simulated month [DAYS=30 SEED=1 LOOKUPS=30000]
	@$(BIN)/python bench/reference_month.py $(if $(DAYS),--days $(DAYS)) $(if $(SEED),--seed $(SEED)) $(if $(LOOKUPS),--lookups $(LOOKUPS))

check: $(DEV) ## check lint, types, import directions, sizes, names, patterns, dead code, docs
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python tools/check_sizes.py
	@$(BIN)/python tools/check_names.py
	@$(BIN)/python tools/check_patterns.py
	@$(BIN)/python tools/check_dead_code.py
	@$(BIN)/python tools/check_docs.py

# A dry run does everything that a deployment does, except the upload. It needs no account and no network.
WRANGLER_ENV := CI=1 WRANGLER_SEND_METRICS=false WRANGLER_HIDE_BANNER=true
DRY_RUN := deploy/cloudflare/node_modules/.dry-run

cloudflare: $(RUNTIME) $(WRANGLER) ## bundle for Cloudflare, dry-run live and preview, print the next commands
	@$(BIN)/python deploy/cloudflare/bundle.py
	@for env in "" preview; do \
	  $(WRANGLER_ENV) npx --prefix deploy/cloudflare wrangler deploy --dry-run --cwd deploy/cloudflare --env="$$env" \
	    >$(DRY_RUN) 2>&1 && ! grep -q WARNING $(DRY_RUN) || { cat $(DRY_RUN); exit 1; }; \
	  echo "dry run, $${env:-live}: ok"; grep "Upload\|^env" $(DRY_RUN) | sed 's/^/  /'; \
	done
	@echo && echo "Next, in deploy/cloudflare; docs/cloudflare.md explains each step:" && echo
	@awk '/^## Deploy/ {found = 1} found && /^```/ {if (shown) exit; shown = 1; next} shown' docs/cloudflare.md

conformance: $(DEV) ## replay workerd's recordings [SCENARIOS=path TRACES=path ONLY=ids REAL_TIME=1 OUT=path]
	@cd packages/holdfast/tests && ../../../$(BIN)/python -m conformance \
	  $(if $(SCENARIOS),--scenarios $(abspath $(SCENARIOS))) $(if $(TRACES),--traces $(abspath $(TRACES))) \
	  $(if $(ONLY),--only $(ONLY)) $(if $(REAL_TIME),--real-time) $(if $(OUT),--out $(abspath $(OUT)))

types: $(DEV) ## write the pages' JSDoc types from the shapes
	@$(BIN)/python tools/js_types.py

fmt: $(DEV) ## format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

screenshots: $(DEV) chromium ## take screenshots of the pages in every state
	@$(TESTING) $(BIN)/python tools/screenshots.py

bench: $(DEV) $(WORKERD) chromium ## run the benchmarks; installs wrk (apt) and workerd (npm) if they are missing
	@command -v wrk >/dev/null || (apt-get update -qq && apt-get install -y -qq wrk >/dev/null)
	@command -v npm >/dev/null && npm ci --silent --prefix bench/workerd || echo "npm is missing: workerd is not measured"
	@$(BIN)/python bench/measure_runtime.py
	@$(BIN)/python bench/measure_prices.py
	@$(BIN)/python bench/measure_flood.py
	@$(TESTING) $(BIN)/python bench/measure_front_door.py
	@$(TESTING) $(BIN)/python bench/measure_streams.py
	@$(BIN)/python bench/measure_status.py
	@$(BIN)/python bench/measure_board.py
	@$(BIN)/python bench/measure_periods.py
	@$(BIN)/python bench/measure_rounds.py
	@$(BIN)/python bench/measure_closing.py
	@$(BIN)/python bench/measure_sweep.py
	@$(BIN)/python bench/measure_feed.py
	@$(BIN)/python bench/measure_lane.py
	@$(TESTING) $(BIN)/python bench/page_tasks.py
	@$(BIN)/python bench/measure_cloudflare.py

lock: ## write all files that pin package versions [UPGRADE=1: the newest allowed versions]
	@$(PYTHON) tools/lock.py $(if $(UPGRADE),--upgrade)

clean: ## remove everything that make created
	rm -rf demo-data .venv .venv-pythons .venv-fuzz .venv-mcp .venv-client .venv-mutation .mutation build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache bench/workerd/node_modules \
	  tests/cloudflare/node_modules tests/cloudflare/wheels tests/cloudflare/snapshots $(WORKERD) tests/pages/axe/node_modules \
	  deploy/cloudflare/node_modules deploy/cloudflare/src/tocsin deploy/cloudflare/src/holdfast deploy/cloudflare/migrations deploy/cloudflare/public
