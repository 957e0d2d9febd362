PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: run test check clean

# Installs, fetches the embedded model once, compares KVzap with the full cache and prints the table.
run: $(VENV)/.installed
	$(BIN)/kvprune run --method kvzap

test: $(VENV)/.installed
	$(BIN)/kvprune models --fetch smollm2-135m
	OMP_NUM_THREADS=1 KVPRUNE_TEST_THREADS=1 $(BIN)/python -m pytest -n 2

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy methods benchmarks harness leaderboard

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV)
