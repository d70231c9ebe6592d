# make demo: set everything up and see masked replay forget less.   make test: set up and test.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INTEGRATIONS := .venv-integrations
FAST := not processes and not thorough and not slow and not data and not paper and not faults and not integrations and not ray
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-slow test-paper test-faults test-integrations test-ray soak lint format bench clean

help: ## List the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY) ## Run five systems on the embedded digits, print the table and write the page.
	$(BIN)/remask demo --store out/demo.db

test: $(READY) lint ## Lint, type-check, and run all tests that need no data and little time.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto

test-fast: $(READY) ## For the daily loop: no process, no browser, no long test.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto -m "$(FAST)"

test-slow: $(READY) ## The tests that take longer.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slow

test-paper: $(READY) ## The tests on real data, against published figures.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m 'data or paper'

test-faults: $(READY) ## The long fault tests: random kills, faults at every system call, fuzzing.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rP -m faults
	OMP_NUM_THREADS=1 REMASK_FUZZ_EXAMPLES=1000 $(BIN)/python -m pytest -q tests/results/test_fuzz.py

test-ray: $(READY) ## The tests on clusters: two nodes and more on this machine, killed and added.
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[ray]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m ray

$(INTEGRATIONS)/.ready: pyproject.toml constraints.txt
	test -x $(INTEGRATIONS)/bin/python || $(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python -m pip install -q -c constraints.txt -e '.[dev,integrations,mlflow,onnx,tensorboard,wandb]'
	touch $(INTEGRATIONS)/.ready

test-integrations: $(INTEGRATIONS)/.ready ## The recipes with Lightning and transformers, and ONNX, in an environment of their own.
	OMP_NUM_THREADS=1 $(INTEGRATIONS)/bin/python -m pytest -q -m integrations

soak: $(READY) ## Everything that can go wrong, mixed at random: 1,000 kills, at most half an hour.
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.runs.soak --minutes 30 --kills 1000

lint: $(READY) ## Ruff, mypy, and the import rules.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## Put the code in order.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## Measure speed, as ratios: trials, heads, ResNet steps, methods.
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/stacked_trials.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/linear_head.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/resnet_step.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/method_cost.py

clean: ## Remove everything that was made here.
	rm -rf $(VENV) $(INTEGRATIONS) out build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
