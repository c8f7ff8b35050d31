# `make demo` and `make test` work from a bare clone: they make .venv and install into it.
# The first Python here that will do; DGL's wheels are for 3.11.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$python && break; done)
BIN := .venv/bin
# A file is tested by one process, so that what its tests share is made once.
PYTEST_OPTIONS ?= -n 2 --dist loadfile
# Files and folders whose slow tests are run; all of them where empty.
SLOW ?=
RUNS := .venv/runs
INSTALLED := .venv/installed
# Where Python is told to keep no compiled files, every process would rewrite every assertion and compile every module.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test smoke test-slow test-random test-slurm test-gpu gpu-report test-docs coverage docs lint bench install clean

demo: $(RUNS)  ## compute a deletion screen, predict genes that training never deletes, compare with baselines, draw, check with DGL
	$(BIN)/dglcell train conf/106-ecoli-core/gene_disjoint.yaml split.seed=0 --without-messages 1
	$(BIN)/dglcell check runs/106-ecoli-core/gene_disjoint/seed-0 --strains 32 --quiet || test $$? -eq 3 # without DGL

test: $(INSTALLED)  ## everything but the slow tests
	$(BIN)/python -m pytest $(PYTEST_OPTIONS)

smoke:  ## install with PYTHON into an environment of its own, train for an epoch, run the tests of the core
	rm -rf build/smoke
	$(PYTHON) -m venv build/smoke
	build/smoke/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	build/smoke/bin/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	build/smoke/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[wandb,parquet]" --group dev
	build/smoke/bin/dglcell doctor
	build/smoke/bin/dglcell train conf/quickstart.yaml trainer.epochs=1 data.source.insilico.triples=none \
		split.subset.size=1000 paths.runs=build/smoke/runs paths.data=build/smoke/data
	build/smoke/bin/python -m pytest -q $(PYTEST_OPTIONS) tests/graph tests/kernels tests/nn tests/losses

test-slow: $(INSTALLED)  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow $(SLOW) $(PYTEST_OPTIONS)

test-random: $(INSTALLED)  ## the tests of properties, with examples that nobody has tried yet
	DGLCELL_EXAMPLES=random $(BIN)/python -m pytest -m hypothesis $(PYTEST_OPTIONS)

test-slurm: $(INSTALLED)  ## on a SLURM of two nodes that the tests start here; needs slurm-wlm and munge (see CONTRIBUTING.md)
	$(BIN)/python -m pytest -m slurm tests/slurm

test-gpu: $(INSTALLED)  ## those for a GPU; without one, along a GPU's paths on the CPU where that is possible
	$(BIN)/python -m pytest tests/gpu tests/kernels/test_spmm.py $(PYTEST_OPTIONS)

gpu-report:  ## on a machine with a GPU: training steps beside PyTorch Geometric and the GPU's tests, into build/gpu-report
	$(or $(wildcard $(BIN)/python),python3) -m benchmarks.gpu_once build/gpu-report

coverage: $(INSTALLED)  ## which lines `make test` does not reach: a measurement, not a condition
	$(BIN)/python -c "import pytest_cov" 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --constraint constraints.txt --group coverage
	$(BIN)/python -m pytest $(PYTEST_OPTIONS) --cov --cov-report=term

docs: $(INSTALLED)  ## the site, into docs/_build/html; warnings are errors
	$(BIN)/python -c "import sphinx, furo, myst_nb, sphinxcontrib.katex" 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[docs]"
	rm -rf docs/_build docs/_generated
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs docs/_build/html

test-docs: docs  ## the site's links, and all that it shows, slow pages too
	$(BIN)/python -m pytest tests/docs -m "slow or not slow" $(PYTEST_OPTIONS)

lint: $(INSTALLED)  ## ruff, mypy, who may import whom, and how large each folder may be
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 dglcell  # text is UTF-8 whatever the locale
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/budget.py

bench: $(INSTALLED)  ## time training steps against the methods that came before, on a cell graph of yeast size
	$(BIN)/python -m benchmarks.bench

install: $(INSTALLED)

# What a user needs. torch comes first and on its own, so that a build chosen by hand (CPU or CUDA) is kept.
$(RUNS): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $(RUNS)

# What a developer needs beside it.
$(INSTALLED): $(RUNS)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[wandb,parquet,bench]" --group dev
	touch $(INSTALLED)

clean:
	rm -rf .venv build docs/_build docs/_generated *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
