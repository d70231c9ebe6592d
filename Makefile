# make demo: install remask and run the demo.   make test: install and run the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
INTEGRATIONS := .venv-integrations
DOCS := .venv-docs
PACKAGING := .venv-packaging
JAX := .venv-jax
FAST := not processes and not thorough and not slow and not data and not paper and not faults and not integrations and not ray
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-slow test-paper test-faults test-integrations test-ray test-wheel test-oldest package soak docs lint format bench bench-check clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

# The demo needs only remask; the development dependencies take another 600 MB.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[fast]'
	touch $(INSTALLED)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $(INSTALLED) $(READY)

demo: $(INSTALLED) ## Train five systems on the embedded digits; print a table and write a page
	$(BIN)/remask demo --store out/demo.db
	@echo "The command remask is in $(BIN): source $(BIN)/activate"

test: $(READY) lint ## Lint, type-check and run the tests (5 minutes on two cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto

test-fast: $(READY) ## Tests without processes, browsers and long loops
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto -m "$(FAST)"

test-slow: $(READY) ## Tests that take longer than a few seconds
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slow

test-paper: $(READY) ## Tests on real data, against published figures
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m 'data or paper'

test-faults: $(READY) ## Random kills, faults at every system call, fuzzing
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rP -m faults
	OMP_NUM_THREADS=1 REMASK_FUZZ_EXAMPLES=1000 $(BIN)/python -m pytest -q tests/store/test_fuzz.py

test-ray: $(READY) ## Tests on Ray clusters of several nodes on this machine
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[ray]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m ray

$(INTEGRATIONS)/.ready: pyproject.toml constraints.txt
	test -x $(INTEGRATIONS)/bin/python || $(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python -m pip install -q -c constraints.txt -e '.[dev,docs,integrations,mlflow,onnx,tensorboard,text,vision,wandb]'
	touch $(INTEGRATIONS)/.ready

test-integrations: $(INTEGRATIONS)/.ready ## Recipes, ONNX and encoders, in a separate environment
	OMP_NUM_THREADS=1 $(INTEGRATIONS)/bin/python -m pytest -q -m integrations

$(DOCS)/.ready: pyproject.toml constraints.txt
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' > $(DOCS)/wanted.txt
	$(DOCS)/bin/python -m pip install -q -c constraints.txt -r $(DOCS)/wanted.txt
	touch $(DOCS)/.ready

docs: $(DOCS)/.ready ## Build the site into out/site; fails on any warning
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --clean

$(PACKAGING)/.ready: constraints.txt
	test -x $(PACKAGING)/bin/python || $(PYTHON) -m venv $(PACKAGING)
	$(PACKAGING)/bin/python -m pip install -q -c constraints.txt build cffconvert twine
	touch $(PACKAGING)/.ready

package: $(PACKAGING)/.ready ## Build and check the source distribution, the wheel and CITATION.cff
	rm -rf build dist
	REMASK_REPOSITORY="$${REMASK_REPOSITORY-$$(git remote get-url origin 2>/dev/null)}" $(PACKAGING)/bin/python -m build
	$(PACKAGING)/bin/python -m twine check --strict dist/*
	$(PACKAGING)/bin/cffconvert --validate

# $(1): the constraints; $(2): more options of pytest. pyproject.toml goes along for pytest's settings; the source does not.
define test_the_wheel
	unset PYTHONPATH && away=$$(mktemp -d) && trap 'rm -rf "$$away"' EXIT && \
	$(PYTHON) -m venv $$away/venv && \
	$$away/venv/bin/python -m pip install -q -c $(1) "$$(ls dist/*.whl)[test]" && \
	OMP_NUM_THREADS=1 $$away/venv/bin/python -m pytest -q -m slow tests/docs/test_notebooks.py $(2) && \
	cp -r tests pyproject.toml $$away && cd $$away && \
	OMP_NUM_THREADS=1 venv/bin/python -m pytest -q -n auto -m "$(FAST)" $(2) && \
	venv/bin/remask demo --store $$away/demo.db
endef

test-wheel: package ## The notebooks, the fast tests and the demo on the wheel, in a new environment
	$(call test_the_wheel,constraints.txt)

test-oldest: package ## The same with the oldest supported dependencies
	$(call test_the_wheel,constraints-oldest.txt,-W default::DeprecationWarning)

soak: $(READY) ## 1,000 random kills and faults; at most 30 minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.runs.soak --minutes 30 --kills 1000

lint: $(READY) ## Ruff, mypy and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## Format the code and apply automatic fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(JAX)/.ready:
	test -x $(JAX)/bin/python || $(PYTHON) -m venv $(JAX)
	$(JAX)/bin/python -m pip install -q jax numpy
	touch $@

bench: $(READY) $(JAX)/.ready ## Measure speed: trials beside JAX, losses, heads, nets, methods, growth, workers
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/speed.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/loss_cost.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/linear_head.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/resnet_step.py --steps 5
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/method_cost.py --rounds 3
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/growth.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/workers.py --rounds 1

bench-check: $(READY) ## Fail if a speed ratio is over 15 % worse than its bound
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/check.py

clean: ## Remove everything that make created
	rm -rf $(VENV) $(INTEGRATIONS) $(DOCS) $(PACKAGING) $(JAX) out build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
