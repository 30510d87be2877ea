# Every target makes its own environment in .venv from pyproject.toml and constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
TYPED := --jaxtyping-packages=multimdm,beartype.beartype

.PHONY: quickstart figures playground test test-browser check docs bench clean help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

quickstart: .venv/installed  ## train, adapt, distil, generate and compare, in minutes; the report is in runs/quickstart
	$(BIN)/multimdm quickstart

figures: .venv/installed  ## reproduce the conditional-entropy figure and draw the forward processes, in runs/figures
	$(BIN)/multimdm entropy --out runs/figures
	$(BIN)/multimdm entropy --forward --seed 219 --out runs/figures

# The first one answers requests that name no model; the page compares any two.
CKPT ?= $(wildcard $(foreach name,quantile multimdm-distilled mdlm-distilled multimdm mdlm,runs/quickstart/$(name)/model))
PORT ?= 8000

playground: .venv/installed  ## watch text being drafted by the quickstart's models, or by others: make playground CKPT=...
	@test -n "$(strip $(CKPT))" || { echo "There is no checkpoint in runs/quickstart yet. Run 'make quickstart' first, or name one: make playground CKPT=runs/tales-mdlm/model"; exit 1; }
	$(BIN)/multimdm serve $(CKPT) --port $(PORT)

test: .venv/installed  ## run the tests; shapes and dtypes are checked at run time, except where wrong ones are the point
	$(BIN)/pytest -n $(WORKERS) -m 'not unchecked and not browser' $(TYPED)
	$(BIN)/pytest -n $(WORKERS) -m unchecked

test-browser: .venv/installed  ## try the playground in headless Chromium, which it installs; screenshots are kept in runs/playground-screenshots
	command -v chromium > /dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }
	$(BIN)/pytest -m browser tests/serving

check: .venv/installed  ## lint, types, direction of dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

.venv/installed-docs: .venv/installed
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable '.[docs]'
	touch $@

docs: .venv/installed-docs  ## build the documentation as a site in runs/site, and check every link of it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python tools/site_links.py runs/site

bench: .venv/installed  ## measure speed as ratios
	$(BIN)/python benchmarks/process.py
	$(BIN)/python benchmarks/network.py
	$(BIN)/python benchmarks/tales.py
	$(BIN)/python benchmarks/prepare.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/half_precision.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/distillation.py
	$(BIN)/python benchmarks/gpu_costs.py

clean:  ## remove the environment, caches and runs
	rm -rf .venv runs dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
