# make demo: train and report in minutes; make test: all CI checks; make gpu: checks on a GPU machine.
# make docs: build the site into build/site, with the model of make demo (else trained once, minutes). Each sets up .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO := runs/demo
PART := tests
# one single-threaded process per core
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: demo test gpu docs style types suite exhaustive lint clean

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .[dev,bench]
	touch $@

demo: $(INSTALLED)
	$(BIN)/python scripts/demo.py run_dir=$(DEMO)

test: $(INSTALLED)
	$(MAKE) --jobs=2 style types suite  # types are checked while the tests run

gpu: $(INSTALLED)
	$(BIN)/python -m benchmarks.gpu

docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .[docs]
	$(BIN)/mkdocs build --strict --quiet

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

suite:
	$(PYTEST)

exhaustive: $(INSTALLED)
	$(PYTEST) -m exhaustive $(PART)

lint: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) runs build dist *.egg-info
