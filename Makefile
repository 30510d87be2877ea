# Every target makes its own environment in .venv from pyproject.toml and constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
TYPED := --jaxtyping-packages=multimdm,beartype.beartype

# What runs, what checks it, and what builds the documentation need different things: each is installed when it is wanted.
.PHONY: quickstart figures playground models test test-browser golden check sbom docs bench clean help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

.venv/installed-to-run: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable '.[serve]'
	touch $@

.venv/installed: .venv/installed-to-run
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

quickstart: .venv/installed-to-run  ## train, adapt, distil, generate and compare, in minutes; the report is in runs/quickstart
	$(BIN)/multimdm quickstart

figures: .venv/installed-to-run  ## reproduce the conditional-entropy figure and draw the forward processes, in runs/figures
	$(BIN)/multimdm entropy --out runs/figures
	$(BIN)/multimdm entropy --forward --seed 219 --out runs/figures

# Built-in models, then those of the quickstart if it was run. The first one answers requests that name no model.
CKPT ?= tales tales-mdlm $(wildcard $(foreach name,quantile multimdm-distilled mdlm-distilled multimdm mdlm,runs/quickstart/$(name)/model))
PORT ?= 8000

playground: .venv/installed-to-run  ## watch text being drafted by built-in models, or by others: make playground CKPT=...
	$(BIN)/multimdm serve $(CKPT) --port $(PORT)

models: .venv/installed-to-run  ## train the built-in models again and pack them into the package (two hours of a core; goes on where it was stopped)
	$(BIN)/python tools/builtin_models.py train
	$(BIN)/python tools/builtin_models.py pack

test: .venv/installed  ## run the tests; shapes and dtypes are checked at run time, except where wrong ones are the point
	$(BIN)/pytest -n $(WORKERS) -m 'not unchecked and not browser' $(TYPED)
	$(BIN)/pytest -n $(WORKERS) -m unchecked

test-browser: .venv/installed  ## try the playground and the report in headless Chromium, which it installs; screenshots are kept in runs
	command -v chromium > /dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }
	$(BIN)/pytest -m browser tests/serving tests/report

GOLDEN ?= runs/golden.json

golden: .venv/installed  ## record golden runs in GOLDEN, to be compared bit for bit before and after a change that must change nothing
	mkdir -p $(dir $(GOLDEN))
	PYTHONPATH=tests $(BIN)/python -m golden_runs.record $(GOLDEN)

check: .venv/installed  ## lint, types, direction of dependencies, known vulnerabilities of pinned packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python tools/audit.py

sbom: .venv/installed  ## write the bill of materials, all packages that are needed at run time, as CycloneDX: runs/sbom.cdx.json
	$(BIN)/python tools/sbom.py runs/sbom.cdx.json

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
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/half_precision.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/distillation.py
	$(BIN)/python benchmarks/gpu_costs.py

clean:  ## remove the environment, caches and runs
	rm -rf .venv runs dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
