# `make` lists the targets. Everything runs in .venv, which `make install` makes and the others ask for.

PYTHON ?= python3
VENV := .venv
OLDER := .venv-triton36
PY := $(VENV)/bin/python
# Two processes suit the smallest host; each keeps to neighbouring tests and takes others when it runs dry.
JOBS ?= 2
PYTEST := $(PY) -m pytest -n $(JOBS) --dist worksteal
READY := $(VENV)/.installed
# A GPU machine often has everything and no network: `make gpu PYTHON=python3` takes that Python as it is.
ifeq ($(origin PYTHON),command line)
  GPU_PY := $(PYTHON)
else
  GPU_PY := $(PY)
  GPU_READY := $(READY)
endif

.DEFAULT_GOAL := help
.PHONY: help install run test test-all test-older lint format gpu record record-check screenshots fuzz speed

help:  ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

install: $(VENV)/.installed  ## make .venv with all that running and testing need
$(VENV)/.installed: requirements.txt requirements-dev.txt tools/install.py
	@$(PYTHON) tools/install.py requirements-dev.txt
	@touch $@

run: $(READY)  ## serve the page on http://127.0.0.1:7860
	@$(PY) app.py

test: $(READY)  ## the tests that this host can run, in a few minutes
	@$(PY) tools/browser.py
	@$(PYTEST) -m "not slow"

test-all: $(READY)  ## every test, and thousands of random kernels
	@$(PY) tools/browser.py
	@$(PYTEST)
	@$(PY) -m tests.native.fuzz

test-older: $(OLDER)/.installed  ## kernels and native path on the oldest Triton that is supported
	@$(OLDER)/bin/python -m pytest -m "not slow" tests/kernels tests/native

# .venv with another Triton before it: a second environment that costs one package.
$(OLDER)/.installed: $(READY)
	@echo "install: $(OLDER), .venv's packages with Triton 3.6 in front (1 minute)"
	@$(PY) -m venv --clear $(OLDER)
	@$(OLDER)/bin/python -m pip install --quiet --no-deps "triton>=3.6,<3.7"
	@$(PY) -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
	  > $$($(OLDER)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/venv.pth
	@touch $@

lint: $(READY)  ## ruff (lint and format) and mypy
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy

format: $(READY)  ## let ruff format and mend what it can
	@$(PY) -m ruff format
	@$(PY) -m ruff check --fix

gpu: $(GPU_READY)  ## the tests that need a GPU; `make gpu PYTHON=python3` takes that Python as it is
	@$(GPU_PY) -m pytest -m gpu

record: $(GPU_READY)  ## on a GPU: measure every kernel into assets/recordings
	@$(GPU_PY) -m playground record

record-check: $(READY)  ## list the recordings whose kernels have changed since
	@$(PY) -m playground record-check

screenshots: $(READY)  ## take the README's screenshots from the real page
	@$(PY) -m tools.screenshots

fuzz: $(READY)  ## thousands of random kernels on the native CPU path
	@$(PY) -m tests.native.fuzz

speed: $(READY)  ## time the native CPU path beside PyTorch, on a host that does nothing else
	@$(PY) -m tests.native.speed
