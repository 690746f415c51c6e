# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
# Test processes at once, which share the tests out among themselves as they go.
WORKERS ?= 2
PARALLEL := -n $(WORKERS) --dist worksteal
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-oldest test-ray test-slow test-fast check check-install docs bench torture clean

# torch first and alone: the pinned version has a CPU build, and whatever asks for torch later finds it installed.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/python -m patience_env.training.demo

test: $(STAMP)
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest $(PARALLEL) -m 'not slow and not compiled' \
	    --cov --cov-report=term:skip-covered
	$(BIN)/python -m pytest $(PARALLEL) --ignore=tests/test_search.py
	$(BIN)/python -m pytest -m 'not slow' tests/test_search.py

# The search's thousand endings against brute force take long.
test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow tests/test_search.py

# The oldest Gymnasium that is supported (RLlib pins it), without any extra.
$(VENV)-oldest/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-oldest
	grep -v '^gymnasium==' constraints.txt > $(VENV)-oldest/constraints.txt
	$(VENV)-oldest/bin/pip install --quiet --constraint $(VENV)-oldest/constraints.txt \
	    gymnasium==1.2.2 --editable . pytest hypothesis
	touch $@

test-oldest: $(VENV)-oldest/installed
	NUMBA_DISABLE_JIT=1 $(VENV)-oldest/bin/python -m pytest -m 'not slow and not compiled' \
	    tests/test_env.py tests/test_vector.py tests/test_registration.py tests/test_wrappers.py

# RLlib pins the oldest Gymnasium too, so Ray has an environment of its own; torch first and alone, as above.
$(VENV)-ray/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-ray
	sed 's/^gymnasium==.*/gymnasium==1.2.2/' constraints.txt > $(VENV)-ray/constraints.txt
	$(VENV)-ray/bin/pip install --quiet --constraint $(VENV)-ray/constraints.txt torch
	$(VENV)-ray/bin/pip install --quiet --constraint $(VENV)-ray/constraints.txt \
	    --editable '.[train,ray]' pytest hypothesis
	touch $@

test-ray: $(VENV)-ray/installed
	$(VENV)-ray/bin/python -m pytest tests/test_ray.py tests/test_docs.py -k 'test_ray or rllib'

test-fast: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) -m 'not slow'

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tests/check_types.py
	$(BIN)/python -m pytest $(PARALLEL) -m 'not slow'

# What ships, installed into a clean environment without extras.
check-install: $(STAMP)
	$(BIN)/python tests/check_install.py

# The site, into site/: game pages and reference are made from docstrings, rule sheets and results.
# For its few moves nothing need be compiled.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 NUMBA_DISABLE_JIT=1 $(BIN)/python -m mkdocs build --strict

bench: $(STAMP)
	$(BIN)/python tests/benchmarks/speed.py
	$(BIN)/python tests/benchmarks/frames.py

# Steps by the million, fuzzing, kills, floods: whether anything breaks. Writes docs/reliability.md (20 minutes).
torture: $(STAMP)
	$(BIN)/python tests/torture/run.py --minutes 20

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-ray build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .coverage demo site
