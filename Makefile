# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CORPUS ?= corpus

.PHONY: demo test check format bench clean

demo: $(VENV)/installed
	$(BIN)/deepjoin demo

test: $(VENV)/developing
	$(BIN)/python -m pytest -n 2
	$(MAKE) check

check: $(VENV)/developing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/developing
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/developing
	$(BIN)/python benchmarks/equi_search.py $(CORPUS)

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

# Torch by its version first: then the build for processors is taken, not the one for GPUs.
$(VENV)/developing: $(VENV)/installed requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV) deepjoin-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
