# Every target makes its own environment in .venv from pyproject.toml and constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
TYPED := --jaxtyping-packages=multimdm,beartype.beartype

.PHONY: quickstart test check bench clean help

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

quickstart: .venv/installed  ## reproduce the conditional-entropy figure and draw the forward processes, in runs/quickstart
	$(BIN)/multimdm entropy --out runs/quickstart
	$(BIN)/multimdm entropy --forward --seed 219 --out runs/quickstart

test: .venv/installed  ## run the tests; shapes and dtypes are checked at run time, except where wrong ones are the point
	$(BIN)/pytest -n $(WORKERS) -m 'not unchecked' $(TYPED)
	$(BIN)/pytest -n $(WORKERS) -m unchecked

check: .venv/installed  ## lint, types, direction of dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: .venv/installed  ## measure speed as ratios
	$(BIN)/python benchmarks/process.py
	$(BIN)/python benchmarks/network.py
	$(BIN)/python benchmarks/tales.py
	$(BIN)/python benchmarks/prepare.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/sampling.py

clean:  ## remove the environment, caches and runs
	rm -rf .venv runs dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
