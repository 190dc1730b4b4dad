# Two commands do everything on a fresh machine: make demo, make test. While developing: make quick.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CORPUS ?= corpus
# Two more than the cores of a small machine: many tests wait for a server, a browser or a child.
WORKERS ?= 4
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo quick test all-tests check check-code check-types format reference matrix wheel-check hard bench page page-check browser clean

demo: $(VENV)/installed
	$(BIN)/deepjoin demo
	@echo "To make the command available in this shell: source $(BIN)/activate"

# No network, torch, Ray, PostgreSQL or browser: under a minute on two cores.
quick: $(VENV)/quick
	$(BIN)/python -m pytest -n 2 --doctest-ignore-import-errors --hypothesis-profile quick -m "not slow and not train and not ray and not postgres and not page"

# The checks run while tests wait for a server, a browser or a child. The packages of the page come
# first: with them the tests look at its accessibility, too.
test: $(VENV)/developing browser
	web/check.sh packages
	$(MAKE) -j3 all-tests check LATER="nice -n 10"

all-tests: $(VENV)/developing
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --durations 15

check: check-code check-types page-check

check-code: $(VENV)/developing
	$(LATER) $(BIN)/ruff check
	$(LATER) $(BIN)/ruff format --check
	$(LATER) $(BIN)/lint-imports
	$(LATER) $(BIN)/python tools/reference.py --check

check-types: $(VENV)/developing
	$(LATER) $(BIN)/mypy

format: $(VENV)/developing
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

reference: $(VENV)/developing
	$(BIN)/python tools/reference.py

# The quick tests on every Python found here, and with the oldest dependencies that are allowed.
matrix:
	$(PYTHON) tools/matrix.py

# Build a wheel, install it into an empty environment, and use it.
wheel-check:
	$(PYTHON) tools/wheel_check.py

# Look for what breaks: kills, power cuts, histories, malformed files and requests, signals, limits.
# Not part of the tests; cases that fail are kept in tests/hard/, which the tests run again.
MINUTES ?= 10
hard: $(VENV)/developing
	$(BIN)/python benchmarks/hard.py --minutes $(MINUTES)

bench: $(VENV)/developing
	$(BIN)/python benchmarks/equi_search.py $(CORPUS)

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/quick: $(VENV)/installed requirements-quick.txt
	$(PIP) -r requirements-quick.txt
	touch $@

# Torch by its version first: then the build for processors is taken, not the one for GPUs.
$(VENV)/developing: $(VENV)/quick requirements-dev.txt
	$(PIP) torch==2.13.0
	$(PIP) -r requirements-dev.txt
	touch $@

# The page is committed as built; building it needs node. Its types come from the Python code.
page: $(VENV)/developing
	$(BIN)/python web/generate_types.py
	cd web && npm ci --silent --no-audit --no-fund && npx vite build

page-check:
	$(LATER) web/check.sh

# The tests of the page need Debian's chromium; without it they are skipped, and the summary says so.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; } || \
	echo "==== Chromium is not here and cannot be installed: the page will not be tested."

clean:
	rm -rf $(VENV) .matrix dist deepjoin-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
