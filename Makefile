# make demo | test | bench | lint: each sets up .venv by itself; a second run reuses it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A strict editable install links single files, so a new or removed file needs a reinstall; an edited .py does not.
FILES := $(shell find gelu_fast export -name '*.py' -o -name '*.pyi' -o -name '*.pyx' -o -path '*page_files/*' | sort | cksum | cut -d' ' -f1)
SOURCES := setup.py pyproject.toml $(wildcard gelu_fast/cpu/*.pyx gelu_fast/cpu/*.h gelu_fast/cpu/*.[c])
SOURCES := $(filter-out gelu_fast/cpu/ufuncs.c,$(SOURCES))
DEPS := $(VENV)/.deps
BUILD := $(VENV)/.build-$(FILES)

.PHONY: demo test bench bench-full bench-ffn bench-torch bench-rewrites bench-forms accuracy accuracy-exhaustive docs \
  test-baseline test-aarch64 test-deploy deploy-facts \
  test-asan test-ubsan test-packaging test-old-cpus test-freethreaded test-minimum audit lint setup clean
setup: $(BUILD)

$(DEPS): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PYTHON) -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb')); \
	o = p['project']['optional-dependencies']; \
	flat = lambda names: [r for n in names for r in (flat(n) if isinstance(n, list) else [n])]; \
	print('\n'.join(r for r in flat(list(o.values())) + p['project']['dependencies'] if not r.startswith('gelu-fast')))" \
	> $(VENV)/requirements.txt
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -r $(VENV)/requirements.txt
	# Its Mlp alone is used in tests; torchvision, which it asks for, doesn't load beside a torch of another build.
	$(BIN)/pip install -q --disable-pip-version-check --no-deps timm
	touch $@

$(BUILD): $(DEPS) $(SOURCES)
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation --no-deps \
	  --config-settings editable_mode=strict -e .
	rm -f $(VENV)/.build-*
	touch $@

demo: $(BUILD)
	$(BIN)/python benchmarks/demo.py

test: $(BUILD)
	$(BIN)/pytest

# OPENBLAS_*, where set, slow NumPy's BLAS.
BENCH := env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(BIN)/python benchmarks/bench.py
bench: $(BUILD)
	$(BENCH)

bench-full: $(BUILD)
	$(BENCH) --full

accuracy: $(BUILD)
	$(BIN)/gelu-fast accuracy

# All 2^32 float32 inputs of each function; resumes where it was stopped. Twenty minutes of one core.
accuracy-exhaustive: $(BUILD)
	$(BIN)/gelu-fast accuracy --exhaustive all --output accuracy-results --overwrite

bench-ffn: $(BUILD)
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(BIN)/python benchmarks/feed_forward.py

# GELU in models that others' exporters made, before and after rewrite.
bench-rewrites: $(BUILD)
	$(BIN)/python benchmarks/rewrites.py

# Which form of GELU is quickest in which onnxruntime; remakes export/measured.py.
bench-forms: $(BUILD)
	$(BIN)/python benchmarks/forms.py --write

bench-torch: $(BUILD)
	$(BIN)/python benchmarks/torch_gelu.py

# The whole suite as on a CPU without AVX.
test-baseline: $(BUILD)
	GELU_FAST_ISA=baseline $(BIN)/pytest

test-aarch64: $(BUILD)
	@command -v aarch64-linux-gnu-gcc qemu-aarch64 >/dev/null || \
	  { echo "needs: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"; exit 2; }
	$(BIN)/pytest tests/test_aarch64.py

# Exported files in onnxruntime 1.17.3, 1.20.1, the newest, node, WebAssembly and Chromium; installs those in .deploy/.
test-deploy: $(BUILD)
	bash tests/deploy/setup.sh
	GELU_FAST_DEPLOY=1 $(BIN)/pytest tests/test_deploy.py tests/test_page.py tests/test_page_browser.py -rP

# What each of them reads, has kernels for and fuses, as JSON: the facts of export/targets.py.
deploy-facts: $(BUILD)
	@$(BIN)/python tests/deploy/probe.py

# The extension built with gcc's sanitizers, in build/; the kernel tests.
test-asan: $(BUILD)
	$(PYTHON) tests/packaging/sanitizers.py address

test-ubsan: $(BUILD)
	$(PYTHON) tests/packaging/sanitizers.py undefined

# sdist, manylinux wheel, -e, without OpenMP, other CPythons: each installed and tested in an empty environment.
test-packaging:
	$(PYTHON) tests/packaging/wheels.py

# Under qemu as a Nehalem and a Haswell.
test-old-cpus: $(BUILD)
	$(PYTHON) tests/packaging/old_cpus.py

# Builds CPython --disable-gil from Debian's source first.
test-freethreaded:
	$(PYTHON) tests/packaging/freethreaded.py

# The lowest versions that pyproject.toml allows.
test-minimum:
	$(PYTHON) tests/packaging/minimum.py

# Withdrawn releases, known holes and packages that disagree, as far as the registries tell.
audit: $(BUILD)
	$(PYTHON) tests/packaging/audit.py

# The API reference, from docstrings, in build/docs. "!" leaves out what pdoc would add by itself: names of __all__ that
# are modules too. Not from the root, where ./gelu_fast shadows the installed package.
API := gelu_fast !gelu_fast[.] gelu_fast.bounds gelu_fast.cuda gelu_fast.export !gelu_fast[.]export[.] gelu_fast.forms gelu_fast.jit gelu_fast.torch gelu_fast.ufuncs
docs: $(BUILD)
	rm -rf build/docs && mkdir -p build
	cd build && $(CURDIR)/$(BIN)/python -P -W error -m pdoc -d numpy -o docs $(API)

lint: $(BUILD)
	$(BIN)/ruff check .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint gelu_fast
	cd $(VENV) && ./bin/mypy --config-file ../pyproject.toml

clean:
	rm -rf build $(VENV) *.egg-info gelu_fast/cpu/ufuncs.c
