# New users run `make demo` and `make test`. Each step leaves a stamp file, so that it runs again only
# when one of its dependencies has changed.

PYTHON ?= python3
# The PyTorch for development. Any version in pyproject.toml's range works: make test-torch TORCH=2.14.1
TORCH := $(shell sed -n 's/^torch==//p' requirements-torch.txt)
# Wheels are made for each of these versions of PyTorch and each of these Pythons.
WHEELS := $(TORCH)
PYTHONS := $(PYTHON)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet --quiet

# Tools of .venv come first: setup.sh may install a CMake there, and the system's ruff and mypy are not used.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Number of compilers and test processes that run at a time. To change it: make test JOBS=4
export JOBS := $(or $(shell $(PYTHON) tools/parallel_jobs.py 2>/dev/null),1)
export CMAKE_BUILD_PARALLEL_LEVEL = $(JOBS)
export CTEST_PARALLEL_LEVEL = $(JOBS)

SETUP_DONE := $(VENV)/.stamp-setup
TORCH_DONE := $(VENV)/.stamp-torch
PACKAGES_DONE := $(VENV)/.stamp-packages
TIDY_DONE := $(VENV)/.stamp-tidy
SITE_DONE := $(VENV)/.stamp-site
BUILD_DONE := build/.stamp-build

CPP_FOLDERS := $(wildcard include csrc tests/core tests/torch tests/cuda_stand_in examples)
CPP_FILES = $(shell find $(CPP_FOLDERS) -name '*.h' -o -name '*.cpp')
PYTHON_FOLDERS := $(wildcard python tests tools examples bench)
# Includes folders: the removal of a file changes only its folder's time.
BUILD_INPUTS = $(shell find include csrc cmake) CMakeLists.txt pyproject.toml
MESSAGES := build/messages.md
MESSAGE_INPUTS = $(shell find python/recoup tests/python/reports -name '*.py')

# The runs and plots of `make bench`. Results that are in build/bench.json are not measured again.
BENCH_CASES := --policies recoup dtr dte coop --budgets 80,60,50,40,30
BENCH_ALTERNATIVES := --nets all --policies recoup --budgets 80 \
  --alternatives checkpoint-block checkpoint-sqrt selective
BENCH_CHART_NETS := resnet50 unet gpt2
BENCH_PLOTS := time compute fragmentation layout scatter search
FUZZ_ROUNDS := 100000
BENCH_TIMELINE := --nets unet gpt2 --policies recoup coop --budgets 50

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test build plain-build lint format tidy core-test asan-test example torch-test test-device \
        test-cuda test-cuda-stand-in test-arm64 test-frameworks test-hook test-torch test-peer test-slow test-injection \
        test-wheels wheels wheels-arm64 fuzz bench bench-real bench-smoke messages docs clean

help: ## list these targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: build ## train a network in less memory than it needs
	$(BIN)/python examples/demo.py

test: lint core-test asan-test torch-test ## lint, core tests, core tests under sanitizers, torch tests

build: $(BUILD_DONE) ## .venv with all packages, recoup included (editable)

plain-build: $(PACKAGES_DONE) ## compile each source file alone: finds missing includes (no part of `make test`)
	cmake --preset plain
	cmake --build --preset plain

lint: $(PACKAGES_DONE) ## formats, ruff, mypy, layer order, words
	@echo "checking the format of all C++ files"
	@$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)
	$(BIN)/ruff check $(PYTHON_FOLDERS)
	$(BIN)/ruff format --check $(PYTHON_FOLDERS)
	$(BIN)/mypy
	$(BIN)/python tools/check_layers.py
	$(BIN)/python tools/check_words.py

format: $(PACKAGES_DONE) ## format all sources in place
	@echo "formatting all C++ files"
	@$(BIN)/clang-format -i $(CPP_FILES)
	$(BIN)/ruff check --fix-only $(PYTHON_FOLDERS)
	$(BIN)/ruff format $(PYTHON_FOLDERS)

tidy: $(TIDY_DONE) ## clang-tidy over the core (minutes; no part of `make test`)
	cmake --preset core
	find csrc -name '*.cpp' -not -path 'csrc/torch/*' -not -path 'csrc/python/*' -print0 | \
	  xargs -0 -n 1 -P 2 $(BIN)/clang-tidy --quiet -p build/core

core-test: $(SETUP_DONE) ## the core's tests: no Torch, seconds
	cmake --workflow --preset core

asan-test: $(SETUP_DONE) ## the core's tests under AddressSanitizer and UBSan
	cmake --workflow --preset asan

torch-test: build example test-device ## the tests with PyTorch
	tools/run_tests.sh $(BIN)/python
	RECOUP_HOOK=backend_select OMP_NUM_THREADS=2 tools/run_tests.sh $(BIN)/python $(foreach name,$(HOOK_SHORT),$(wildcard tests/python/*/test_$(name).py))

# Both ways of intercepting ops pass the same tests; these run each time, with two threads in kernels.
HOOK_SHORT := hook attribution module_names compiled composites contract_outside contract_replays contract_versions opaque_ops list_ops \
  random_programs subclasses

test-hook: build example test-device ## all tests with PyTorch, with the other way of intercepting ops
	RECOUP_HOOK=backend_select tools/run_tests.sh $(BIN)/python

test-torch: $(SETUP_DONE) ## the tests with another PyTorch, in an environment of its own: TORCH=2.14.1
	tools/test_torch.sh $(PYTHON) $(TORCH) $(TESTS)

test-frameworks: $(SETUP_DONE) ## training with frameworks, in an environment of its own
	tools/test_frameworks.sh $(PYTHON) $(TORCH) $(TESTS)

test-peer: build ## test suites of other projects, plain and in scopes: SUITE=folder MODE="force dflt"
	$(BIN)/python tools/peer_tests $(SUITE) $(if $(MODE),--mode $(MODE)) $(ARGUMENTS)

wheels: $(PACKAGES_DONE) ## dist/: the sdist and wheels: WHEELS="2.13.0 2.14.1" PYTHONS="python3.10 python3.12"
	PYTHONS="$(PYTHONS)" tools/wheels.sh $(BIN)/python $(WHEELS)

# Pairs of a Python and a PyTorch for which dist/ has a wheel: python3.10=2.13.0
TESTED_WHEELS := $(foreach python,$(PYTHONS),$(foreach torch,$(WHEELS),$(python)=$(torch)))
test-wheels: ## install wheels of dist/ in a Debian without compilers, and train there; as root
	tools/test_wheels.sh $(TESTED_WHEELS)

wheels-arm64: $(PACKAGES_DONE) ## dist/: the same wheels for Linux on arm64, cross-compiled; as root
	tools/wheels_arm64.sh $(BIN)/python $(WHEELS)

test-arm64: $(PACKAGES_DONE) ## the core's tests and some with PyTorch for Linux on arm64, under qemu; as root
	tools/test_arm64.sh $(BIN)/python $(TORCH) $(TESTS)

test-device: build ## the device that stands for CUDA in the tests with PyTorch
	cmake --build build/python --target recoup_test_device

test-cuda: ## the tests on a GPU, with the PyTorch of PYTHON; skipped if there is no GPU
	tools/test_cuda.sh $(PYTHON)

# A PyTorch with CUDA, in pyproject.toml's range: a download of 1.2 GB.
CUDA_TORCH := 2.14.1
test-cuda-stand-in: $(SETUP_DONE) ## the GPU tests without a GPU, on a stand-in for CUDA: CUDA_TORCH=2.14.1
	tools/test_cuda_stand_in.sh $(PYTHON) $(CUDA_TORCH) $(TESTS)

fuzz: $(SETUP_DONE) ## fuzz the trace reader: FUZZ_ROUNDS files, then a tenth of them under sanitizers
	cmake --preset core && cmake --build --preset core
	RECOUP_FUZZ_ROUNDS=$(FUZZ_ROUNDS) build/core/tests/recoup_core_tests --gtest_filter='TraceFuzz.*'
	cmake --preset asan && cmake --build --preset asan
	RECOUP_FUZZ_ROUNDS=$$(($(FUZZ_ROUNDS) / 10)) RECOUP_FUZZ_SEED=2 \
	  build/asan/tests/recoup_core_tests --gtest_filter='TraceFuzz.*'

test-slow: build ## the long sweeps
	$(BIN)/python -m pytest -m slow

# Each test with a scope runs with 50 injected faults of each kind. Tests that check a run's evictions,
# peaks or messages are left out, because faults change these.
INJECTED := composites opaque_ops contract_outside contract_replays contract_versions

test-injection: build ## faults injected into the tests of the contract (hours)
	@for kind in fail-allocation fail-replay force-eviction; do \
	  PYTHONPATH=tests/python/support $(BIN)/python -m pytest -q -p injection --inject $$kind --faults 50 \
	    $(foreach name,$(INJECTED),$(wildcard tests/python/*/test_$(name).py)) || exit; \
	done

bench: export OMP_NUM_THREADS := 1
bench: build ## docs/results/bench.json, its pictures, its pictures: half an hour; continues after Ctrl-C
	$(BIN)/recoup bench $(BENCH_CASES) --out build/bench.json
	$(BIN)/recoup bench $(BENCH_ALTERNATIVES) --out build/bench.json
	@cp build/bench.json docs/results/bench.json
	@for kind in $(BENCH_PLOTS); do \
	  $(BIN)/recoup bench $(BENCH_CASES) --out docs/results/bench.json \
	    --plot docs/results/bench-$$kind.png --plot-of $$kind >/dev/null || exit; \
	done
	$(BIN)/recoup bench $(BENCH_TIMELINE) --timeline docs/results/bench-timeline.png
	$(BIN)/recoup bench --nets $(BENCH_CHART_NETS) $(BENCH_CASES) --out docs/results/bench.json \
	  --plot docs/results/chart.png >/dev/null

bench-real: build ## docs/results/bench-real.json, its page and picture: 5 rounds of 75 minutes; continues after Ctrl-C
	$(BIN)/recoup bench --size real --spill 64GiB $(BENCH_REAL) --out build/bench-real.json \
	  --plot docs/results/bench-real.png --page docs/results/bench-real.md
	@cp build/bench-real.json docs/results/bench-real.json

bench-smoke: build ## a small bench: its columns, its bits, and continuing it (part of torch-test)
	$(BIN)/python -m pytest tests/python/bench/test_bench_smoke.py

example: build ## build and run the C++ example
ifneq ($(wildcard examples/train.cpp),)
	cmake --build build/python --target recoup_example_train
	build/python/recoup_example_train
endif

messages: $(MESSAGES) ## build/messages.md: all errors, warnings and reports; prints what changed since the last time
	@echo "$< has all messages"

docs: $(SITE_DONE) build $(MESSAGES) ## build/site/README.html: all pages, and the references of Python and C++ (no part of `make test`)
	@mkdir -p build
	doxygen tools/site/Doxyfile
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -d build/doctrees -c tools/site . build/site

clean: ## remove build results; .venv stays
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache

$(SETUP_DONE): tools/setup.sh
	tools/setup.sh $(PYTHON) $(VENV)
	@touch $@

# Installed first and alone: as a dependency of another package, pip could choose another build of torch,
# with gigabytes of CUDA libraries.
$(TORCH_DONE): $(SETUP_DONE)
	$(PIP) install torch==$(TORCH)
	@touch $@

# torch is named again, so that no other requirement can change it.
$(PACKAGES_DONE): $(TORCH_DONE) requirements-build.txt requirements-dev.txt
	$(PIP) install torch==$(TORCH) -r requirements-dev.txt
	@touch $@

$(TIDY_DONE): $(SETUP_DONE) requirements-tidy.txt
	$(PIP) install -r requirements-tidy.txt
	@touch $@

$(SITE_DONE): $(PACKAGES_DONE) requirements-site.txt
	tools/setup.sh $(PYTHON) $(VENV) doxygen
	$(PIP) install -r requirements-site.txt
	@touch $@

$(MESSAGES): $(BUILD_DONE) $(MESSAGE_INPUTS)
	$(BIN)/python tests/python/script.py messages

$(BUILD_DONE): $(PACKAGES_DONE) $(BUILD_INPUTS)
	@echo "building recoup: a few minutes the first time"
	$(PIP) install --no-build-isolation --no-deps --editable .
	@mkdir -p $(@D) && touch $@
