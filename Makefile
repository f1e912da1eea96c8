# Everything one does with a checkout. `make demo` needs Python 3.11 or newer with pip, git and make, nothing else.
#
#   make demo             set everything up and show arkqueue at work (ARGS=--git for a Git archive)
#   make example-NAME     an application of workflows-examples/NAME/ on a server of its own (ARGS=--git, ARGS=--help)
#   make test             the test suite, but for what takes minutes (ARGS=… goes to pytest)
#   make test-full        what `make test` leaves out: builds images, deploys, breaks engines, looks at pages in a browser, draws most of the random examples
#   make test-long        `make test` with many more random examples, and what takes many minutes
#   make screenshots      pictures of the pages in docs/screenshots/ (ARGS="FOLDER --only archive run")
#   make recording        `make demo` as an animation, docs/demo.svg (ARGS=FILE)
#   make bench            how fast it is, beside its peers (ARGS="--quick", "3 6", "--help")
#   make check            format, lint, types, import contract
#   make format           put the code into the format that `make check` wants

VENV ?= .venv
ARGS ?=
# How many tests run at once; without it as many as were quickest on two processors.
WORKERS ?=
# The first Python that is new enough.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

# Modules are compiled once, as where arkqueue is installed, and not at each start of a command.
unexport PYTHONDONTWRITEBYTECODE

RUN = $(VENV)/bin/python -m
PIP = $(RUN) pip --disable-pip-version-check --quiet install

# The applications; each is a folder with a program that runs it.
EXAMPLES = $(patsubst workflows-examples/%/run.py,%,$(wildcard workflows-examples/*/run.py))

.PHONY: FORCE demo test test-full test-long screenshots recording bench check format clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	$(VENV)/bin/arkqueue demo $(ARGS)

example-%: $(VENV)/installed-examples FORCE
	@test -e workflows-examples/$*/run.py || { echo "there is no example $*; there are: $(EXAMPLES)" >&2; exit 1; }
	@PYTHONPATH=workflows-examples $(VENV)/bin/python workflows-examples/$*/run.py $(ARGS)

# The order of sets is part of what random examples come to (tests/conftest.py).
test test-full: export PYTHONHASHSEED = 0
test: $(VENV)/installed-dev
	tests/requirements.sh
	$(RUN) pytest -n $(or $(WORKERS),5) --dist worksteal -m "not full and not long" $(ARGS)

# Seven browsers and engines at once may take several times as long as one, so the limit that ends a hanging test is longer here.
test-full: $(VENV)/installed-dev $(VENV)/axe
	tests/requirements.sh
	$(RUN) pytest -n $(or $(WORKERS),7) --dist worksteal -m full --timeout 600 $(ARGS)

test-long: export HYPOTHESIS_PROFILE = long
test-long: $(VENV)/installed-dev
	tests/requirements.sh
	$(RUN) pytest -n $(or $(WORKERS),5) --dist worksteal -m "not full or long" --timeout 7200 $(ARGS)

screenshots: $(VENV)/installed-dev
	$(RUN) tests.screenshots $(ARGS)

recording: $(VENV)/installed-dev
	$(RUN) tests.recording $(ARGS)

bench: $(VENV)/installed-dev
	$(RUN) benchmarks $(ARGS)

check: $(VENV)/installed-dev
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	$(VENV)/bin/lint-imports

format: $(VENV)/installed-dev
	$(RUN) ruff check --fix-only --quiet .
	$(RUN) ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# The stamps say what the environment holds; pyproject.toml alone decides whether that is still right.
$(VENV)/installed: pyproject.toml | $(VENV)/bin/pip
	@echo "installing arkqueue and what it needs into $(VENV)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/installed-examples: pyproject.toml | $(VENV)/bin/pip
	@echo "installing arkqueue and what its examples need into $(VENV)"
	@$(PIP) --editable '.[examples]'
	@touch $@ $(VENV)/installed

$(VENV)/installed-dev: pyproject.toml | $(VENV)/bin/pip
	@echo "installing arkqueue and what its tests need into $(VENV)"
	@$(PIP) --editable '.[dev,examples]'
	@# The tests are compiled once, or each worker of the first run would compile all of them for itself.
	@for folder in tests/*/; do $(RUN) pytest --collect-only -qq $$folder >/dev/null 2>&1 & done; wait
	@touch $@ $(VENV)/installed $(VENV)/installed-examples

# What judges whether everybody can use the pages; without npm, its test says so.
$(VENV)/axe: | $(VENV)/bin/pip
	@npm install --prefix $@ --no-save --ignore-scripts --no-audit --no-fund --silent axe-core@4.14.1 || echo "axe-core is missing: install npm (Debian: apt-get install npm)" >&2

# Some systems ship Python without ensurepip; then the pip beside it puts itself into the environment.
$(VENV)/bin/pip:
	@test -n "$(PYTHON)" || { echo "arkqueue needs Python 3.11 or newer; found: $$(python3 --version 2>&1). Install it, or run: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 \
		|| { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --quiet --python $(VENV)/bin/python install pip; } \
		|| { echo "no virtual environment can be made: install Python's venv or pip package (Debian: apt-get install python3-venv)" >&2; rm -rf $(VENV); exit 1; }
