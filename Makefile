# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CORPUS ?= corpus

.PHONY: demo test check format bench clean
.PHONY: page page-check browser

demo: $(VENV)/installed
	$(BIN)/deepjoin demo

test: $(VENV)/developing browser
	$(BIN)/python -m pytest -n 2
	$(MAKE) check

check: $(VENV)/developing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	web/check.sh

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

# The page is committed as built; building it needs node.
page:
	cd web && npm ci --silent --no-audit --no-fund && npx vite build

page-check:
	web/check.sh

# The tests of the page need Debian's chromium; without it they are skipped, and the summary says so.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; } || \
	echo "==== Chromium is not here and cannot be installed: the page will not be tested."

clean:
	rm -rf $(VENV) deepjoin-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
