# You can run every target again at any time; stamp files record what is installed.
# make run needs Python 3.11 or newer with venv. make test also needs Go, Node.js with npm, and Java with Maven, to install real servers.
# If PostgreSQL, Redis or Chromium are missing, it needs apt as root, or through sudo without a password.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: install run test quick explore services lint bench soak crash push-simulation crash-points dist deb sbom locks audit docs clean
.DELETE_ON_ERROR:

install: $(VENV)/.stamp-dev

# The demo: a log dir that grows, and the daemon on it. Ctrl-C stops both; the next run continues.
run: $(VENV)/.stamp-run
	@$(BIN)/tierd demo --config config/quickstart.yaml

# Workers of pytest. One worker runs all tests of a file, and each worker starts real servers of its own.
WORKERS ?= 2
test: $(VENV)/.stamp-dev services
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# A short check between two edits: lint, and the rooms whose tests need no server, no Spark and few processes. It takes less than
# four minutes on two cores. make test runs all tests.
QUICK := $(addprefix tests/,config control cost fuzz house kernels model serve telemetry transcripts test_backoff.py test_schedule.py \
    $(addprefix log/,broker cleaning files indexes inspection loading partition producers records repair segments) \
    $(addprefix metadata/,rows views) \
    $(addprefix pipeline/,cleaning committing planning rewriting) \
    $(addprefix remote/,cache segments transform) \
    $(addprefix tiering/,copying local reading removing test_copy_plan.py test_partition_status.py test_quota_gate.py test_rate_quota.py \
        test_slots.py test_topic_policy.py))

quick: lint
	$(BIN)/pytest -q -n 2 --dist loadfile -m "not service" $(QUICK)

# New examples for every property, where make test has the same ones in each run. A failure prints the line that repeats it.
explore: $(VENV)/.stamp-dev
	$(BIN)/pytest -q -n 2 --dist loadfile -m "not service" --hypothesis-profile=new \
	    $$(grep -rlE --include='test_*.py' '@given|RuleBasedStateMachine|stateful' tests)

# If a server cannot be installed on this machine, its tests are skipped, and the skip names the server. With CI=true this is a failure.
services:
	@tests/services/install.sh || [ "$$CI" != true ]
	@for version in 3.9.2 4.3.1; do \
	    KAFKA_VERSION=$$version tests/services/kafka/kafka.sh libs -Pstreams || [ "$$CI" != true ] || exit 1; \
	done

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.house

bench: $(VENV)/.stamp-dev services
	$(BIN)/python -m tests.bench --page docs/performance.md

# Random actions on a broker of each version, its tierd and the store. The records of a real consumer are the expected result.
MINUTES ?= 30
SEED ?= 0
soak: $(VENV)/.stamp-dev services
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --seed $(SEED)

# Power cuts on a simulated disk, one story for each seed. With SEEDS=1, the steps of the story are printed.
SEEDS ?= 10000
FIRST ?= 0
crash: $(VENV)/.stamp-dev
	$(BIN)/python -m tests.crash --seeds $(SEEDS) --first $(FIRST)

# Leaders, standbys and links of push replication on simulated time, one story for each seed. With SEED=7, the steps of that story are printed.
push-simulation: $(VENV)/.stamp-dev
	$(BIN)/python -m tests.replication.simulation $(if $(filter command line,$(origin SEED)),--seed $(SEED),--seeds $(SEEDS) --first $(FIRST))

# Kills every operation that changes the tier at every point, on every metadata backend, with both successors.
crash-points: $(VENV)/.stamp-dev services
	$(BIN)/python -m tests.tiering.crash_points
	$(BIN)/python -m tests.services run postgres redis -- sh -c 'for backend in sqlite postgres redis; do \
	    echo $$backend; $(BIN)/python -m tests.tiering.crash_points --backend $$backend --jobs 2 || exit 1; done'

# Writes the sdist and the wheel into dist/.
dist: $(VENV)/.stamp-dev
	$(BIN)/python -m tests.packaging.dist

# Writes the Debian package into dist/, for the Debian release and the processor of this machine. Needs no root. The package has an
# SBOM and a list of licences in /usr/share/doc/tierd; make sbom writes them into dist/.
deb: $(VENV)/.stamp-dev
	$(BIN)/python -m tests.packaging.debian

sbom: $(VENV)/.stamp-dev
	$(BIN)/python -m tests.packaging.debian --bill

# Resolves every package of a production install and writes its hashes. The versions stay those of constraints.txt.
locks: $(VENV)/.stamp-dev
	$(PIP) install --quiet uv
	$(BIN)/python -m tests.packaging.lock

# Fails for a known vulnerability of the packages of a production install that requirements/accepted-vulnerabilities.toml does not
# accept. If the advisory database cannot be reached, the command says so and exits 0.
audit: $(VENV)/.stamp-dev
	@$(BIN)/python -m tests.packaging.audit

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
