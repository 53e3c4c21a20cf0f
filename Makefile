# The chores of Holdfast. `make` alone lists them.
# Paths are relative and nothing is expanded from the folder's name, so a path with a space is fine.

.DEFAULT_GOAL := help
SHELL := /bin/sh

python := .venv/bin/python
ready := .venv/ready
sources := $(wildcard src tests examples bench scripts)
# One version for everybody who regenerates the lock files. `make lock LOCK_FLAGS=--upgrade` moves all pins.
uv := uv==0.13.8
compile := $(python) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

.PHONY: help demo up test check verify soak bench bench-quick bench-peers docs generate lock setup clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: setup ## run the forge on real git repositories, kill a worker, check every push
	@$(python) -m examples.forge.demo

up: setup ## start everything in one process on an embedded PostgreSQL
	@.venv/bin/holdfast up

test: setup ## run the tests on real PostgreSQL servers
	@$(python) -m pytest -q -n 2

check: setup ## format, lint, types, layers
	@echo "check: format"; $(python) -m ruff format --check --quiet .
	@echo "check: lint"; $(python) -m ruff check --quiet .
	@echo "check: types"; $(python) -m mypy --no-error-summary $(sources)
	@echo "check: layers"; .venv/bin/lint-imports --no-logo

verify: setup ## hold the contracts: locks, budgets, SQL, generated files, docs
	@$(python) -m pytest -q -n 2 tests/contracts

soak: setup ## run the long tests under load
	@$(python) -m pytest -q -m soak --timeout 3600

bench: setup ## measure Holdfast beside its peers, five rounds: takes hours (see bench/README.md)
	@$(python) -m bench run

bench-quick: setup ## measure a part of it once, in two minutes
	@$(python) -m bench run --quick

bench-peers: setup ## install the peers of the benchmark, each in its own environment
	@$(python) -m bench peers

docs: setup ## check that the docs say what the program does
	@$(python) -m pytest -q tests/contracts -k "docs or tutorial or bad_input or states or reference"

generate: setup ## write the sync client and the tables of the docs anew from the code
	@$(python) scripts/sync_client.py
	@$(python) scripts/reference_tables.py
	@$(python) scripts/cli_reference.py

lock: setup ## write requirements/*.txt anew from pyproject.toml, with hashes
	@echo "lock: installing $(uv)"; $(python) -m pip install -qq --disable-pip-version-check $(uv)
	@echo "lock: requirements/test.txt"
	@$(compile) $(LOCK_FLAGS) pyproject.toml requirements/build.in --extra test --extra check -o requirements/test.txt >/dev/null
	@echo "lock: requirements/runtime.txt"
	@$(compile) pyproject.toml --constraint requirements/test.txt -o requirements/runtime.txt >/dev/null

setup: $(ready) ## make .venv from the locked requirements (once, and when they change)
	@:

# -qq: pip warns about the settings of the machine it runs on, which is not news here; its errors still show.
$(ready): requirements/test.txt pyproject.toml .ci/environment
	@echo "setup: making .venv"; .ci/environment
	@echo "setup: installing the locked requirements"
	@$(python) -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r requirements/test.txt
	@echo "setup: installing holdfast itself"
	@$(python) -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(ready)

clean: ## remove what make and the tools left behind
	@rm -rf .venv bench/.venvs dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find src tests $(wildcard examples bench) -name __pycache__ -type d -prune -exec rm -rf {} +
