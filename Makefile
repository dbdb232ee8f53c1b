# `make demo` and `make test` do all the set-up by themselves; a second call is fast.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

.PHONY: demo test types doctests

demo: $(STAMP)
	$(BIN)/fedparity compare --data digits --partition "shards" --clients 10 \
	    --fractions 0.6,0.2,0.2 --model linear \
	    --algorithms "fedavg,qffl(q=5),afl(eta=0.1),eagle(lam=2)" \
	    --rounds 500 --lr 0.1 --steps 1 --seed 0 \
	    --out runs/demo/$$(date +%Y-%m-%d-%H%M%S)

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --jobs 2 types doctests
	$(BIN)/pytest tests --numprocesses 2 --dist loadgroup

types: $(STAMP)
	$(BIN)/mypy

doctests: $(STAMP)
	$(BIN)/pytest --doctest-modules src/fedparity

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)
