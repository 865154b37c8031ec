# Everything runs in an environment of its own, made on demand. Needs Python 3.11 or newer, make, and g++ or clang++.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
PY := $(VENV)/bin/python
# Modules are compiled when they are first imported: most of them never are. What is compiled is kept, also where an
# image's environment says otherwise: each of the processes that tests start would compile torch's, for 15 seconds.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(PY) -m pip install --quiet --no-compile
# Where the index has torch with CUDA only, a CPU build: make TORCH_INSTALL="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
TORCH_INSTALL ?= torch==2.13.0
# Tests run in so many processes; a file stays in one of them, so that its kernels are built once.
WORKERS ?= 2
PYTEST_ARGS ?=
BENCH_ARGS ?=
BENCH_OUT ?= bench_results/$(shell date +%Y%m%d-%H%M%S)
FIGURES_ARGS ?=
KERNELS_ARGS ?=
FUZZ_ARGS ?=
SANITIZE_ARGS ?= -q
SWEEP_ARGS ?= --resume

.DEFAULT_GOAL := help
.PHONY: help env demo test pytest check lint types fuzz bench bench-all bench-gemm bench-kernels bench-layers figures clean memory sanitize emulate sweep test-full

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

env: $(VENV)/.ready ## Make the environment: torch, this package (editable), tests and benchmarks

$(VENV)/.ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python found: install Python 3.11 or newer."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$(PYTHON) is too old: install Python 3.11 or newer, or give PYTHON=<path>."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH_INSTALL)
	$(PIP) --editable '.[test,bench]'
	@touch $@

demo: env ## Compile ResNet-50 and BERT-base, and print what that gives
	$(PY) -m bench_suites.demo

check: lint types ## Format, lint and types

lint: env
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .

types: env
	$(VENV)/bin/mypy

# Types are checked beside the tests: one core would wait for them.
test: env lint ## All checks and all tests
	@$(MAKE) --no-print-directory --jobs=2 types pytest

pytest: env
	$(PY) -m pytest --numprocesses $(WORKERS) --dist loadfile --durations 20 $(PYTEST_ARGS)

fuzz: env ## Random graphs and index expressions against eager (FUZZ_ARGS="--minutes 10 --processes 2")
	$(PY) -m tests.fuzz --index --minutes 0.5
	$(PY) -m tests.fuzz $(FUZZ_ARGS)

test-full: env ## The cases that `make test` leaves out, each one of many like it
	$(PY) -m pytest --numprocesses $(WORKERS) --dist loadfile -m full $(PYTEST_ARGS)

bench: env ## A ten-minute selection of the three suites, and a page of it (BENCH_ARGS="--threads 1")
	$(PY) -m bench_suites run all --quick --out $(BENCH_OUT) $(BENCH_ARGS); code=$$?; \
	  $(PY) -m bench_suites report $(BENCH_OUT) && exit $$code

bench-all: env ## All models, and the suites kernels, gemm and attention: hours (BENCH_ARGS="--torchbench-dir ../benchmark --resume" BENCH_OUT=folder)
	$(PY) -m bench_suites run all --out $(BENCH_OUT) $(BENCH_ARGS); code=$$?; \
	  $(PY) -m bench_suites report $(BENCH_OUT) && exit $$code

bench-gemm: env ## Matrix products and attention against libraries and the machine's limits (BENCH_ARGS="-k int8")
	$(PY) -m pytest -q --benchmark-disable-gc --benchmark-columns=median bench_suites/gemm $(BENCH_ARGS)

bench-kernels: env ## Loop nests of models against stock and the memory's bandwidth (KERNELS_ARGS="-k softmax")
	$(PY) -m bench_suites.kernels run --prepare $(KERNELS_ARGS)
	$(PY) -m bench_suites.kernels run --out bench_results/kernels.json $(KERNELS_ARGS)

bench-layers: env ## Some 440 single layers against eager mode, what loses most first (LAYERS_ARGS="--mode training --filter conv")
	$(PY) -m bench_suites.layers $(LAYERS_ARGS)

figures: env ## Nine models, first calls cold and warm, and call overhead (FIGURES_ARGS="--help")
	$(PY) -m bench_suites.compare $(FIGURES_ARGS)

memory: env ## What weights and their packed copies take, by three settings
	$(PY) -m bench_suites.weights

sweep: env ## PyTorch's operator database against eager: hours, goes on where it stopped (SWEEP_ARGS="--resume --help")
	$(PY) -m tests.sweep $(SWEEP_ARGS)

sanitize: env ## Tests under AddressSanitizer and UndefinedBehaviorSanitizer, red zones on (SANITIZE_ARGS: pytest's)
	$(PY) -m tests.sanitize $(SANITIZE_ARGS)

emulate: env ## Tests as on a CPU with AVX-512 and AMX, emulated where this one lacks them (EMULATE_ARGS: pytest's)
	$(PY) -m tests.emulation $(EMULATE_ARGS)

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
