# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-nojit test-fast check bench clean

# torch first and alone: the pinned version has a CPU build, and whatever asks for torch later finds it installed.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/python -m patience_env.training.demo

test: $(STAMP)
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -m 'not slow and not compiled' --cov --cov-report=term:skip-covered
	$(BIN)/python -m pytest

test-fast: $(STAMP)
	$(BIN)/python -m pytest -m 'not slow'

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tests/check_types.py
	$(BIN)/python -m pytest -m 'not slow'

bench: $(STAMP)
	$(BIN)/python tests/benchmarks/speed.py

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .coverage demo
