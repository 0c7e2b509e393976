# Two commands: `make report` and `make test`. Both share one environment, made once and renewed when its inputs change.
PYTHON ?= python3
VENV ?= .venv
# uv looks for wheels where pip was told to.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)

BIN := $(VENV)/bin
INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt
# What a user needs: the page and the networks, no Spark.
RUN := $(VENV)/.installed-run
# What tests and benchmarks need beside it: oracles, peers, every extra.
STAMP := $(VENV)/.installed-test

.DEFAULT_GOAL := help
.PHONY: help report test test-slow check format benchmark map clean

help:  ## show this help
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(RUN): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(INSTALL) -e '.[report,networks]'
	touch $@

$(STAMP): $(RUN)
	$(INSTALL) -e '.[test,benchmark]'
	touch $@

report: $(RUN)  ## the main job, on the built-in corpus
	$(BIN)/tokengeom report --out results/report.html

check: $(STAMP)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check  ## style, types and the whole test suite
	$(BIN)/python -m pytest -m 'not slow'

test-slow: $(STAMP)  ## the checks that take minutes
	$(BIN)/python -m pytest -m slow

format: $(STAMP)  ## let ruff lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(STAMP)  ## measured ratios against peers
	$(BIN)/python -m benchmarks

map: $(STAMP)  ## write docs/map.md
	$(BIN)/python docs/house_map.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
