# Every target may be run again at any time; stamp files remember what is installed.
# What the targets need: make run, Python 3.11 or newer with venv. make test: also Go, Node.js with npm, Java with Maven and, where
# PostgreSQL or Redis are missing, apt as root or through sudo without a password: all for real servers.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: install run test services lint bench crash crash-points docs clean
.DELETE_ON_ERROR:

install: $(VENV)/.stamp-dev

# The demo: a log dir that keeps growing, and the daemon on it. Ctrl-C stops both; the next run continues.
run: $(VENV)/.stamp-run
	@$(BIN)/tierd demo --config config/quickstart.yaml

# Two workers, a file to one of them; each starts real servers of its own.
test: $(VENV)/.stamp-dev services
	$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder

# A server that cannot be had on this machine makes its tests skip by name, but with CI=true it is a failure.
services:
	@tests/services/install.sh || [ "$$CI" != true ]
	@for version in 3.9.2 4.3.1; do \
	    KAFKA_VERSION=$$version tests/services/kafka/kafka.sh libs || [ "$$CI" != true ] || exit 1; \
	done

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.stamp-dev services
	$(BIN)/python -m tests.bench

# Losses of power on a simulated disk, seed after seed; with SEEDS=1 a single one is told step by step.
SEEDS ?= 10000
FIRST ?= 0
crash: $(VENV)/.stamp-dev
	$(BIN)/python -m tests.crash --seeds $(SEEDS) --first $(FIRST)

# Every operation that changes the tier killed at every point, on every metadata backend, with both successors.
crash-points: $(VENV)/.stamp-dev services
	$(BIN)/python -m tests.tiering.crash_points
	$(BIN)/python -m tests.services run postgres redis -- sh -c 'for backend in sqlite postgres redis; do \
	    echo $$backend; $(BIN)/python -m tests.tiering.crash_points --backend $$backend --jobs 2 || exit 1; done'

docs: $(VENV)/.stamp-dev
	$(BIN)/python -m tierd.config.reference
	$(BIN)/python -m tierd.telemetry.reference
	$(BIN)/python -m tests.conformance

clean:
	rm -rf $(VENV) .run .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("tierd needs Python 3.11 or newer, this is " + sys.version) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.stamp-run: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing tierd into $(VENV)"
	$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing tierd and what its tests need into $(VENV)"
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/.stamp-run
