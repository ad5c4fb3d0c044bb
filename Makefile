# Every target does its own set-up: Python 3.11-3.13, make and a package registry are all it takes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready
BENCH_READY := $(VENV)/.bench-ready
KERNELS_READY := $(VENV)/.kernels-ready

.PHONY: help demo test kernels lint bench bench-search bench-policies gpu docs wheel-test clean

help:
	@echo 'make demo          decode, record, replay with the bundled model; prints a table, writes two pictures'
	@echo 'make test          all tests'
	@echo 'make kernels       the compiled kernels, which make test needs first'
	@echo 'make lint          ruff and mypy'
	@echo 'make bench         the end-to-end benchmark behind the README table (long)'
	@echo 'make bench-search  microseconds of the exact search'
	@echo 'make bench-policies  regret of every policy in the simulator, by cache and link'
	@echo 'make gpu           the tests and measurements that need a CUDA device'
	@echo 'make docs          the documentation site, in site/'
	@echo 'make wheel-test    sdist and wheel, installed and used in an empty environment'
	@echo 'make clean         remove .venv, caches and everything built'

demo: $(READY)
	@$(BIN)/specfit demo

test: $(KERNELS_READY)
	@$(BIN)/python -m pytest -n 2 --dist worksteal --durations=20

kernels: $(KERNELS_READY)

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(READY)
	@$(BIN)/python -m benchmarks.decode

bench-search: $(BENCH_READY)
	@$(BIN)/python -m benchmarks.search

bench-policies: $(READY)
	@$(BIN)/python -m benchmarks.policies

gpu: $(READY)
	@$(BIN)/python -m pytest tests/gpu
	@$(BIN)/python -m benchmarks.gpu

docs: $(DOCS_READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel-test: $(READY)
	@$(BIN)/python tools/check_wheel.py

clean:
	rm -rf $(VENV) site dist build demo-results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find specfit tests training benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt tools/setup_venv.py
	@$(PYTHON) tools/setup_venv.py --extras torch,dev --stamp $@

$(DOCS_READY): $(READY)
	@$(PYTHON) tools/setup_venv.py --extras torch,dev,docs --stamp $@

# Compiled once, before the tests: workers that start without would each compile the same kernels.
$(KERNELS_READY): $(READY) $(shell grep -rlE --include='*.py' '@kernel|@numba' specfit)
	@OMP_NUM_THREADS=1 $(BIN)/specfit decode --prompt 'It was a dark night' -n 8 >/dev/null
	@touch $@

$(BENCH_READY): $(READY)
	@$(PYTHON) tools/setup_venv.py --extras torch,dev,bench --stamp $@
