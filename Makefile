# Every target makes and reuses .venv; nothing else has to be installed first than Python and a C++ compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# --no-compile: Python compiles what is imported, when it is.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
SOURCES := CMakeLists.txt pyproject.toml $(shell find cpp src -name '*.[ch]pp' -o -name '*.py')
CPP := $(shell find cpp -name '*.[ch]pp')

# Where the data sets are that the benchmarks read, if they are there.
ifneq ($(wildcard ../shared/data),)
export LTLS_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test test-all coverage perf lint tidy format sanitize sanitized tsan valgrind fuzz fuzz-serve fuzz-long reliability \
        bench bench-peers bench-quick docs wheel-test annif-test clean
.DELETE_ON_ERROR:

demo: $(VENV)/.ltls $(VENV)/.plot
	$(BIN)/python examples/demo.py

# Two processes; whichever is done first takes tests of the other.
PYTEST := $(BIN)/python -m pytest tests --pyargs ltls -n 2 --dist worksteal
test: $(VENV)/.ltls $(VENV)/.test
	$(PYTEST)

# Also every command of the README, in a fresh clone; and Ray, whose one cluster takes both cores.
test-all: $(VENV)/.ltls $(VENV)/.test $(VENV)/.extras
	$(PYTEST) -m 'not perf and not long' --ignore tests/ray
	$(BIN)/python -m pytest tests/ray --durations 3

# The tests with the share of lines of src/ltls that they run, in a table and as build/coverage/index.html. Processes
# that tests start are not counted.
coverage: $(VENV)/.ltls $(VENV)/.test $(VENV)/.coverage
	$(PYTEST) --cov ltls --cov-report html:build/coverage --cov-report term:skip-covered

CHECK := $(BIN)/check-jsonschema --builtin-schema
lint: $(VENV)/.ltls $(VENV)/.lint
	cp $$($(BIN)/python -c "import ltls, pathlib; print(pathlib.Path(ltls.__file__).parent)")/core/_engine.pyi src/ltls/core/
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --config pyproject.toml
	$(BIN)/clang-format --dry-run --Werror $(CPP)
	$(CHECK) vendor.github-workflows .github/workflows/*.yml
	$(CHECK) vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	$(CHECK) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(CHECK) vendor.dependabot .github/dependabot.yml
	$(CHECK) vendor.citation-file-format --default-filetype yaml CITATION.cff

# Mistakes that compilers do not see in the engine; .clang-tidy has the list.
tidy: $(VENV)/.build $(VENV)/.tidy
	$(BIN)/clang-tidy --quiet $(filter %.cpp,$(CPP)) -- -std=c++20 -Icpp -DLTLS_X86_BUILDS \
	  -isystem $$($(BIN)/python -m nanobind --include_dir) \
	  -isystem $$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('include'))")

format: $(VENV)/.lint
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	$(BIN)/clang-format -i $(CPP)

# The engine's tests against a build with address and undefined-behaviour sanitizers.
# Tests of times are left out. A sanitizer stops the process and reports to the file descriptor of
# standard error; `--capture=sys` does not capture that.
SANITIZED := build/sanitize/site
ASAN := LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONMALLOC=malloc
SANITIZE_TESTS ?= -k 'not microseconds and not does_not_search and not scikit_learn and not streams and not memory'
sanitize: sanitized $(VENV)/.test
	$(ASAN) PYTHONPATH=$(SANITIZED) $(BIN)/python -m pytest tests --capture=sys -q -x $(SANITIZE_TESTS)

sanitized: $(VENV)/.ltls
	$(PIP) --no-build-isolation --no-deps --upgrade --target $(SANITIZED) . -C install.strip=false \
	  -C build-dir=build/sanitize/objects -C cmake.define.LTLS_SANITIZE=address,undefined

# The tests with several threads against a build with ThreadSanitizer, which has no pool of threads to count and can start
# no threads after a fork. Those of thousands of labels have one thread and take minutes.
TSAN_TESTS ?= tests/model/test_predictor_threads.py tests/estimators/test_concurrency.py tests/structure/test_threads.py \
  tests/structure/test_buckets.py tests/features/test_counting.py tests/parts/test_sibling_training.py \
  tests/parts/test_label_matrix.py tests/training/test_partial_fit.py tests/serve/test_reload.py \
  -k 'not n_jobs_is_the_number_of_threads and not forked_process_can_call and not thousands'
tsan: $(VENV)/.ltls $(VENV)/.test $(VENV)/.serve
	$(PIP) --no-build-isolation --no-deps --upgrade --target build/tsan/site . -C install.strip=false \
	  -C build-dir=build/tsan/objects -C cmake.define.LTLS_SANITIZE=thread
	LD_PRELOAD="$$($(CXX) -print-file-name=libtsan.so)" TSAN_OPTIONS=exitcode=66 PYTHONPATH=build/tsan/site \
	  $(BIN)/python -m pytest --capture=sys -q $(TSAN_TESTS)

# Changed inputs for everything that reads what others wrote, in minutes; the same in every run.
FUZZ := PYTHONPATH=tests/support $(BIN)/python -m tests.fuzz
fuzz: $(VENV)/.ltls $(VENV)/.test
	$(FUZZ) --seconds 30

# Requests to a server, as many as the documentation says.
fuzz-serve: $(VENV)/.ltls $(VENV)/.test $(VENV)/.serve
	$(FUZZ) http_requests --inputs 100000

# Hours, with another seed every time: against a build with sanitizers, then guided by coverage. Clang and atheris are
# needed for the latter.
FUZZ_SECONDS ?= 3600
fuzz-long: sanitized build/libfuzzer/text build/libfuzzer/rows $(VENV)/.test $(VENV)/.extras $(VENV)/.fuzz
	$(ASAN) PYTHONPATH=$(SANITIZED):tests/support $(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) --seed $$(date +%s)
	$(FUZZ).guided --seconds $(FUZZ_SECONDS)
	$(ASAN) PYTHONPATH=$(SANITIZED):tests/support $(BIN)/python -m tests.fuzz --replay build/guided

# The engine's own targets: libFuzzer, with address and undefined-behaviour sanitizers.
CLANG ?= clang++
LIBFUZZER := $(CLANG) -std=c++20 -O2 -g -Icpp -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined
build/libfuzzer/%: tests/fuzz/engine/%.cpp $(CPP)
	mkdir -p $(@D)
	$(LIBFUZZER) -Wno-bitwise-conditional-parentheses -DLTLS_ISA=baseline $< $(wildcard cpp/kernels/*.cpp) -o $@

# What docs/reliability.md counts, in pieces: every call continues where the last one stopped.
MINUTES ?= 9
reliability: sanitized build/libfuzzer/text build/libfuzzer/rows $(VENV)/.test $(VENV)/.extras
	$(BIN)/python -m pytest tests/crash tests/soak -m long
	PYTHONPATH=tests/support $(BIN)/python -m benchmarks.reliability --minutes $(MINUTES)
	$(ASAN) PYTHONPATH=$(SANITIZED):tests/support $(BIN)/python -m benchmarks.reliability --minutes $(MINUTES)
	$(BIN)/python -m benchmarks.pages

# Once per release: the engine's tests under valgrind, which also sees memory that was never written.
# Every call takes 30 times as long, so those of hundreds of cases are left out.
VALGRIND_TESTS ?= tests/structure/test_worked_examples.py tests/model/test_predictor.py tests/io/test_readers.py \
  tests/training/test_partial_fit.py::test_successive_batches_give_the_weights_of_the_reference \
  -k 'not round_trip and not any_file'
valgrind: $(VENV)/.ltls $(VENV)/.test
	$(BIN)/python tests/support/memcheck.py $(VALGRIND_TESTS)

# Tests with a time limit, for a quiet machine.
perf: $(VENV)/.ltls $(VENV)/.test
	$(BIN)/python -m pytest tests -m perf

# What shows in minutes that speed has not rotted: instruction counts, growth, the demo.
bench-quick: $(VENV)/.ltls $(VENV)/.plot
	$(BIN)/python -m benchmarks.micro instructions
	$(BIN)/python -m benchmarks.micro growth --quick
	$(BIN)/python -m benchmarks.tasks demo --quick --check

# All that need neither a GPU nor a peer, then the pages. Those of real data are left out where there is none.
BENCH_DATA := 'tasks text' calibration serving 'settings views' 'settings codebooks' 'settings rounding' 'scale rows' \
  embeddings blocks paper continual
bench: $(VENV)/.ltls $(VENV)/.extras $(VENV)/.neighbours
	$(BIN)/python -m benchmarks.micro instructions
	$(BIN)/python -m benchmarks.micro programs
	$(BIN)/python -m benchmarks.micro growth
	$(BIN)/python -m benchmarks.micro readers
	$(BIN)/python -m benchmarks.tasks demo
	$(BIN)/python -m benchmarks.tasks small_dense
	$(BIN)/python -m benchmarks.scale vectors
	$(if $(LTLS_DATA),,@echo "LTLS_DATA is not set, left out:" $(BENCH_DATA))
	$(if $(LTLS_DATA),set -e; for name in $(BENCH_DATA); do $(BIN)/python -m benchmarks.$$name; done)
	$(BIN)/python -m benchmarks.pages

# Accuracy and speed beside the peers. Accuracy takes hours from nothing, but runs only what is not stored yet.
bench-peers: $(VENV)/.ltls $(VENV)/.plot
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.debian_contents build/contents
	LTLS_DATA=build/contents $(BIN)/python -m benchmarks.scale labels
	$(BIN)/python -m benchmarks.pages

# The documentation, with the API reference from the docstrings, into build/docs. Warnings are errors.
docs: $(VENV)/.ltls $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean

# The wheels as users get them: built from the source distribution for every one of these Pythons that is here, made
# manylinux by auditwheel, installed into a clean environment where no compiler can be found, and tried there.
WHEEL := build/wheel
PYTHONS ?= python3.10 python3.12
wheel-test: $(VENV)/.wheel
	rm -rf $(WHEEL)
	$(BIN)/python -m build --sdist --outdir $(WHEEL) .
	set -e; for python in $(PYTHONS); do \
	  found=$$(ls -d $$HOME/.pyenv/versions/$${python#python}.*/bin/$$python 2>/dev/null | tail -1); \
	  $$python -c "" 2>/dev/null && found=$$python; \
	  if [ -n "$$found" ]; then $(MAKE) --no-print-directory $(WHEEL)/$$python INTERPRETER=$$found; \
	  else echo "$$python is not here: left out"; fi; done

$(WHEEL)/python%:
	$(INTERPRETER) -m venv $@
	$@/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $@/built $(WHEEL)/ltls-*.tar.gz
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/auditwheel repair --wheel-dir $@/dist $@/built/ltls-*.whl
	$@/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: $@/dist/ltls-*.whl
	cd $@ && env -i PATH=$(abspath $@)/bin HOME=$(abspath $@) LC_ALL=C.UTF-8 python $(abspath tests/smoke.py)

# Annif's commands with our server and our backend, in an environment of their own: Annif needs other versions.
ANNIF := build/annif
annif-test:
	$(PYTHON) -m venv $(ANNIF)
	$(ANNIF)/bin/python -m pip install --quiet --disable-pip-version-check '.[serve]' 'annif==1.4.3' hypothesis pytest
	$(ANNIF)/bin/python -m pytest tests/project/test_annif.py

clean:
	rm -rf $(VENV) build dist demo src/ltls/core/_engine.pyi

$(VENV)/.python:
	@echo "== making $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	touch $@

$(VENV)/.ltls: $(VENV)/.build $(SOURCES)
	@echo "== compiling the engine and installing ltls: about a minute, or seconds if no C++ has changed"
	$(PIP) --no-build-isolation .
	touch $@

# The other groups of pyproject.toml: .plot, .test, .lint, .docs, .extras, .neighbours
$(VENV)/.%: $(VENV)/.python pyproject.toml constraints.txt
	@echo "== installing the packages for: $*"
	$(PIP) --group $*
	touch $@
