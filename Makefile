# Everything runs in .venv, which is made from pyproject.toml and constraints.txt when they change.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

# Set, every module would be compiled anew in each of the hundreds of processes that tests start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-docs test-all test-wheel mutants lint audit-dependencies lock openapi docs figures bench bench-peers reliability clean

demo: .venv/user
	$(BIN)/fedbandit demo

test: .venv/developer
	scripts/debian-packages
	$(BIN)/pytest -n auto --dist loadgroup -m "not slow and not docs"

# Executes every code block of README and docs, and builds the site.
test-docs: .venv/developer
	scripts/debian-packages
	$(BIN)/pytest -n auto --dist loadgroup -m "docs and not slow"

# All of it, with the slow ones. SEEDS: schedules of faults for the live agent, e.g. make test-all SEEDS=10000
SEEDS ?= 1000
test-all: .venv/developer
	scripts/debian-packages
	$(BIN)/pytest -n auto --dist loadgroup --fault-seeds $(SEEDS)
	$(MAKE) test-wheel

# Installs the wheel alone with the newest packages that pyproject.toml allows, and tries each extra. Needs an index.
test-wheel: .venv/developer
	$(BIN)/python scripts/try_wheel.py

# Breaks one rule of the package after the other: some test must notice. ONLY=agent: an area, or a part of a bug's name;
# WRITE=1: the table goes into tests/README.md. An interrupted run goes on where it was.
mutants: .venv/developer
	$(BIN)/python scripts/mutants.py --only "$(ONLY)" $(if $(WRITE),--write)

lint: .venv/developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# Fails with known vulnerabilities of the pinned packages; where no database can be reached, says so and passes.
audit-dependencies: .venv/developer
	$(BIN)/python scripts/audit_dependencies.py

# Writes requirements.lock from constraints.txt; downloads every wheel.
lock: .venv/developer
	$(BIN)/python scripts/lock.py

# Builds the documentation into out/site; fails with any warning. Loads nothing from elsewhere.
docs: .venv/developer
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open out/site/index.html, or, to search: $(BIN)/python -m http.server -d out/site"

# Draws the figures of docs/concepts.md again, and the table of paths in docs/http-reference.md.
figures: .venv/developer
	$(BIN)/python scripts/figures.py
	$(BIN)/python scripts/http_reference.py

# Writes the OpenAPI document that the wheel ships, after a change of the HTTP API.
openapi: .venv/developer
	$(BIN)/python scripts/openapi.py

bench: .venv/developer
	$(BIN)/python benchmarks/engine.py

# Measures us beside other libraries, how cost grows and how long a start takes; fills the tables of benchmarks/README.md.
# Makes an environment for each peer in .venv-peers. Needs an index; half an hour. Each script takes --quick, too.
bench-peers: .venv/developer
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/startup.py

# Measures the live agent and writes the numbers into docs/reliability.md.
reliability: .venv/developer
	$(BIN)/python benchmarks/reliability.py

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/user: .venv/bin/pip pyproject.toml constraints.txt
	$(PIP) --editable '.[all]'
	touch $@

.venv/developer: .venv/bin/pip pyproject.toml constraints.txt
	$(PIP) --editable '.[all,dev]'
	touch .venv/user $@

clean:
	rm -rf .venv .venv-peers out .pytest_cache .ruff_cache .hypothesis
