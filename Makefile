# make up       create .venv, install freehold and its engine, run the whole journey on this machine
# make test     install what tests need and run the plain ring
# make install  only what `make up` installs
# make check    everything a change must pass: lint, format, types, all test rings, generated documents
#
# PYTHON picks the interpreter (3.11 or newer); ARGS goes to `freehold up`; RINGS and TESTS to pytest.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
ARGS ?=
TESTS ?= tests
RINGS ?= --engine --browser

VENV := .venv
BIN := $(VENV)/bin
# The name holds the place of this checkout: a moved or copied one installs itself anew.
PLACE := $(shell printf %s "$(CURDIR)" | cksum | cut -d' ' -f1)
INSTALLED := $(VENV)/.installed-$(PLACE)
DEV_INSTALLED := $(VENV)/.dev-installed-$(PLACE)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: up install test check lint types docs docs-check bench-ruler bench-startup lock clean
.DELETE_ON_ERROR:

up: $(INSTALLED)
	@$(BIN)/freehold up $(ARGS)

install: $(INSTALLED)

test: $(DEV_INSTALLED)
	$(BIN)/python -m pytest $(TESTS)

check: lint types docs-check
	$(BIN)/python -m pytest $(RINGS) $(TESTS)

lint: $(DEV_INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV_INSTALLED)
	$(BIN)/mypy

docs: $(DEV_INSTALLED)
	$(BIN)/python tools/generate_docs.py

docs-check: $(DEV_INSTALLED)
	$(BIN)/python tools/generate_docs.py --check

bench-ruler: $(DEV_INSTALLED)
	$(BIN)/python benchmarks/ruler.py $(ARGS)

bench-startup: $(DEV_INSTALLED)
	$(BIN)/python benchmarks/startup.py $(ARGS)

# Pins everything anew with hashes of every platform's files, and without the address of any index.
COMPILE = PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet \
	--generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host --no-emit-options
lock: $(DEV_INSTALLED)
	$(COMPILE) -o requirements/build.txt requirements/build.in
	$(COMPILE) -o requirements/base.txt pyproject.toml
	$(COMPILE) -o requirements/llamacpp.txt requirements/llamacpp.in
	$(COMPILE) -o requirements/dev.txt requirements/dev.in

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "error: no Python 3.11 or newer was found" >&2; \
	echo "  why: $(or $(PYTHON),python3) is $$($(or $(PYTHON),python3) --version 2>/dev/null || echo missing)" >&2; \
	echo "  try: install Python 3.11, then \`make up PYTHON=/path/to/python3.11\`" >&2; exit 3; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	echo "error: $(PYTHON) cannot make a virtual environment" >&2; \
	echo "  why: its venv or ensurepip module is missing; Debian and Ubuntu package them apart" >&2; \
	echo "  try: \`apt-get install python3-venv\`" >&2; exit 3; }
	@echo "creating $(VENV) with $$("$(PYTHON)" --version)"
	@rm -rf $(VENV) && "$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 3; }

$(INSTALLED): requirements/build.txt requirements/base.txt requirements/llamacpp.txt pyproject.toml | $(BIN)/python
	@echo "installing freehold and its engine into $(VENV)"
	@$(PIP) install --require-hashes -r requirements/build.txt -r requirements/base.txt -r requirements/llamacpp.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV_INSTALLED): requirements/dev.txt $(INSTALLED)
	@echo "installing what tests need into $(VENV)"
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@
