# Countersign. `make help` lists what there is.
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell command -v $(name) 2>/dev/null)))
VENV := .venv/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run demo test lint bench chaos lock clean bootstrap

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: bootstrap ## Start everything: PostgreSQL, Redis, web, worker, beat, Flower, inbox (Ctrl-C stops it)
	@$(VENV)/python -m dev.run

demo: bootstrap ## Send one verification end to end and print its receipt
	@$(VENV)/python -m dev.demo

test: bootstrap ## Run all tests; ARGS="-k lease -x" is passed on to pytest
	@$(VENV)/python -m pytest -n 2 --dist loadfile $(or $(ARGS),-q)

lint: bootstrap ## Check formatting, style, types and import rules
	@$(VENV)/ruff format --check .
	@$(VENV)/ruff check .
	@$(VENV)/mypy
	@$(VENV)/lint-imports --no-logo

MINUTES ?= 10
SEED ?=
chaos: bootstrap ## Hurt the whole system under load and check every promise; MINUTES=30 SEED=7
	@$(VENV)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

bench: bootstrap ## Measure what a broker's outage costs a request; ARGS="--rounds 9" is passed on
	@$(VENV)/python -m bench.post_latency $(ARGS)

# Run it after a change of the pins in pyproject.toml; the files name versions and hashes, no package source.
COMPILE = $(VENV)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
lock: bootstrap ## Compile requirements.txt and requirements-dev.txt from pyproject.toml
	@$(COMPILE) pyproject.toml --output-file requirements.txt
	@$(COMPILE) --extra dev --constraint requirements.txt pyproject.toml --output-file requirements-dev.txt

clean: ## Remove .venv, the data in .run, and caches
	@rm -rf .venv .run .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

bootstrap:
	@$(if $(PYTHON),,$(error Python 3.11 or newer is needed: install python3 (Debian 12: apt-get install python3 python3-venv)))
	@$(PYTHON) dev/bootstrap.py
