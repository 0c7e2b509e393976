# Two commands: `make report` and `make test`. Both share one environment, made once and renewed when its inputs change.
PYTHON ?= python3
VENV ?= .venv
# Test files that run at a time.
JOBS ?= 2
# uv looks for wheels where pip was told to.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)

BIN := $(VENV)/bin
# What a report imports, compiled once: uv does not, and where PYTHONDONTWRITEBYTECODE is set no process keeps it either.
IMPORTED := tokengeom.page.render, torch._dynamo, numba, plotly, transformers.models.llama.modeling_llama
# Versions and hashes of everything but torch, whose builds differ by machine: a package with another hash is refused.
# --build-constraint is for what builds this package itself.
LOCK := requirements.lock
INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -c $(LOCK) --build-constraint $(LOCK)
# What a user needs: the page and the networks, no Spark.
RUN := $(VENV)/.installed-run
# What tests and benchmarks need beside it: oracles, peers, every extra.
STAMP := $(VENV)/.installed-test
# What the documentation needs: Sphinx and its theme.
DOCS := $(VENV)/.installed-docs

.DEFAULT_GOAL := help
.PHONY: help report browser test test-slow coverage wheel check format docs links benchmark campaign results map lock clean

help:  ## show this help
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(RUN): pyproject.toml studies/pyproject.toml constraints.txt $(LOCK)
	@python=$$(command -v $(BIN)/python || echo $(PYTHON)); \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	{ echo "tokengeom needs Python 3.11 or newer; $$python is older or missing. Name another: make PYTHON=python3.12"; exit 1; }
	@echo "Installing tokengeom and what it needs into $(VENV), once: 15 s to a few minutes, depending on the network."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' $(LOCK) > $(VENV)/uv.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.txt
	$(INSTALL) -e '.[report,networks]' -e ./studies
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -c 'import $(IMPORTED)'
	touch $@

$(STAMP): $(RUN)
	@echo "Installing what the tests need: a minute or two."
	$(INSTALL) -e '.[test,benchmark]'
	touch $@

$(DOCS): $(RUN)
	@echo "Installing what the documentation needs: some seconds."
	$(INSTALL) -e '.[docs]'
	touch $@

report: $(RUN)  ## the main job, on the built-in corpus
	$(BIN)/tokengeom report --out results/report.html

check: $(STAMP)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Nothing but this installs a browser. Without one, the tests of pages in a browser are skipped, and say so.
browser:  ## a browser for the tests: Debian's chromium, where there is none and it can be installed
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	  command -v $$name >/dev/null && exit 0; \
	done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "No browser yet: installing Debian's chromium."; \
	  apt-get update -qq >/dev/null && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null && exit 0; \
	fi; \
	echo "No browser: tests of the page in a browser will be skipped. To run them: apt-get install chromium, as root."

test: check  ## style, types and the whole test suite
	$(BIN)/python -m pytest -m 'not slow' -n $(JOBS) --dist loadfile

test-slow: $(STAMP)  ## the checks that take minutes
	$(BIN)/python -m pytest -m slow --ignore tests/test_wheel.py

coverage: $(STAMP)  ## the test suite, with the lines and branches that it reaches, in build/coverage
	$(BIN)/python -m pytest -m 'not slow' -n $(JOBS) --dist loadfile --cov --cov-report=term --cov-report=html

wheel: $(STAMP)  ## build wheel and sdist, and try the wheel in empty environments
	$(BIN)/python -m pytest -m slow tests/test_wheel.py

format: $(STAMP)  ## let ruff lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DOCS)  ## the documentation, in site/; every warning and every broken link is an error
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs paper src studies/src
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs site
	$(BIN)/python docs/check_site.py site
	@echo "The documentation is in site/index.html."

links: $(DOCS)  ## whether addresses in the documentation still answer; needs a network
	$(BIN)/python -m sphinx --quiet -b linkcheck -D plot_gallery=0 docs build/links

benchmark: $(STAMP)  ## measured ratios against peers
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks table

campaign: $(STAMP)  ## kills, full disks, damaged inputs and forged results
	$(BIN)/python -m campaign

results: $(STAMP)  ## tables and figures of docs/results and of the paper, from the rows that are kept
	$(BIN)/python results/make_pages.py
	$(BIN)/python results/figures_of_the_papers.py
	$(BIN)/python paper/figure.py

map: $(STAMP)  ## write docs/map.md, and the types of keywords (src/tokengeom/keywords.pyi)
	$(BIN)/python docs/package_map.py
	$(BIN)/python docs/keyword_types.py

lock: $(RUN)  ## renew requirements.lock: the newest versions, with hashes, for Python 3.11 and later
	printf 'uv\nhatchling\n' | $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --all-extras \
	  --no-emit-package torch --no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" \
	  -c constraints.txt -o $(LOCK) pyproject.toml - >/dev/null

clean:  ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
