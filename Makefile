# Each command sets itself up: it needs git, make and Python 3.11 or newer, nothing else.
#
#   make reproduce               measure the default study and make its tables and figures
#   make reproduce STUDY=name    another study: conf/study/name.yaml, or one that `poise plan` made
#   make report                  results/<study>/report.html, one page with all tables and figures
#   make test                    the whole test suite
#   make lint                    formatting, types, workflow lint
#   make docs                    docs/prompts.md, the exact text of every prompt of the position instrument

PYTHON ?= python3
VENV ?= .venv
STUDY ?= demo
CORES ?= all
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Outputs are written whole or not at all, so what a killed run left behind is safe to go on from.
SNAKEMAKE := $(BIN)/snakemake --cores $(CORES) --rerun-incomplete --config study=$(STUDY)

.PHONY: setup reproduce report test lint format docs lock

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Poise needs Python 3.11 or newer, found " + sys.version.split()[0] + "; try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

reproduce: $(READY)
	$(SNAKEMAKE)
	@echo
	@echo "Tables:  results/$(STUDY)/tables/*.md (and .csv, .html)    Figures: figures/$(STUDY)/*.png (and .pdf)"

report: reproduce
	$(SNAKEMAKE) --report results/$(STUDY)/report.html

test: $(READY)
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/python workflow/lint.py

format: $(READY)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

docs: $(READY)
	$(BIN)/poise prompts --output docs/prompts.md

lock:
	rm -rf .venv-lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet setuptools torch==2.13.0 numba==0.65.0 '.[dev]'
	printf '%s\n' \
	  '# Everything that `make` installs, pinned; made by `make lock` from pyproject.toml on Python 3.11, Linux.' \
	  '# torch: pip takes a CPU build where one is at hand, otherwise the platform'"'"'s default build with its own requirements.' \
	  > requirements.lock
	.venv-lock/bin/python -m pip freeze --all --exclude pip --exclude poise | sed 's/+cpu$$//' >> requirements.lock
	rm -rf .venv-lock
