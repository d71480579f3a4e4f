# Two commands on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Where it is set, every process would compile all sources anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow lint types bench clean

demo: $(STAMP)
	$(BIN)/crossfade climb gflownet --preset demo
	$(BIN)/python examples/there_and_back.py

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" $(ARGS)

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/basedpyright

bench: $(STAMP)
	$(BIN)/crossfade bench bridge

$(STAMP): pyproject.toml requirements/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt -e ".[all,dev]"
	@touch $(STAMP)

clean:
	rm -rf $(VENV) .cache runs
