# All tasks of a fresh clone. `make demo` and `make test` need only Python >= 3.11.

# The first Python that is new enough and runs (a pyenv shim may exist and not run).
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for each in python3.11 python3 python3.12 python3.13 python; do \
	"$$each" -c '$(NEW_ENOUGH)' 2>/dev/null && echo "$$each" && break; done)
BIN := .venv/bin
INSTALLED := .venv/.installed
WITH_DEMO := .venv/.demo
WITH_TENSORFLOW := .venv/.tensorflow
WITH_FRAMEWORKS := .venv/.frameworks
WITH_BROWSER := .venv/.browser
WITH_COVERAGE := .venv/.coverage
WITH_DOCS := .venv/.docs
FIRST_SEED ?= 0
SEEDS ?= 10000
MARKED ?= cluster and not exhaustive

unexport PYTHONDONTWRITEBYTECODE  # with it, the Python of every test would compile all modules again

.DEFAULT_GOAL := help
.PHONY: help venv demo lint check test exhaustive tensorflow browser frameworks test-all coverage mutation format sim bench docs cluster-test image clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 15

PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

define VENV
@test -n "$(PYTHON)" || { echo "Python >= 3.11 not found; name one: make PYTHON=/path/to/python3.11"; exit 1; }
@$(BIN)/python -m pip --version >/dev/null 2>&1 || { echo "creating .venv with $(PYTHON)"; $(PYTHON) -m venv --clear .venv; }
endef

$(WITH_DEMO): pyproject.toml constraints.txt
	$(VENV)
	@echo "installing the demo's packages into .venv (with torch: takes minutes on the first run)"
	@$(PIP) -e '.[demo]'
	@touch $@

$(INSTALLED): pyproject.toml constraints.txt
	$(VENV)
	@echo "installing the tests' packages into .venv (with torch: takes minutes on the first run)"
	@$(PIP) -e '.[dev]'
	@touch $@ $(WITH_DEMO)

$(WITH_TENSORFLOW): $(INSTALLED)
	@echo "installing TensorFlow into .venv"
	@$(PIP) -e '.[tensorflow]'
	@touch $@

$(WITH_BROWSER): $(INSTALLED)
	@echo "installing the extra \`browser\` into .venv"
	@$(PIP) -e '.[browser]'
	@touch $@

$(WITH_FRAMEWORKS): $(INSTALLED)
	@echo "installing the extra \`frameworks\` into .venv"
	@DS_BUILD_OPS=0 $(PIP) -e '.[frameworks]'
	@touch $@

$(WITH_COVERAGE): $(INSTALLED)
	@echo "installing coverage.py and mutmut into .venv"
	@$(PIP) -e '.[coverage]'
	@touch $@

$(WITH_DOCS): pyproject.toml constraints.txt
	$(VENV)
	@echo "installing what the documentation site needs into .venv"
	@$(PIP) -e '.[docs]'
	@touch $@

venv: $(INSTALLED)  ## create .venv with all packages for the targets below

demo: $(WITH_DEMO)  ## train on real digits with 4 members, kill a process and a member, and recover from both
	@$(BIN)/python -P examples/digits/demo.py

PURE := $(addprefix tests/unit/,master/core sidecar/core wire cli/conversion)  # only computation in one thread: parallel, seconds
PLAYED := tests/simulation tests/mutants  # both cores against each other: parallel, minutes

lint: $(INSTALLED)  ## check format, lint, types, import contracts and the words of CONTRIBUTING.md
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.words

check: lint  ## run `make lint` and the tests of the cores: 90 s, before every commit
	@$(BIN)/python -m pytest -m 'not slow and not exhaustive' -n 2 $(PURE)

USUAL := not cluster and not exhaustive and not frameworks and not tensorflow and not browser

test: $(INSTALLED)  ## run the tests that need no cluster, without further cases of the same: 4 to 9 minutes on 2 cores
	@$(BIN)/python -m pytest -m '$(USUAL)' -n 6 --dist loadgroup $(ARGS)

exhaustive: $(INSTALLED)  ## run the further cases that `make test` leaves out; ARGS="--budget 8" starts none after 8 minutes
	@$(BIN)/python -m pytest -m 'exhaustive and not cluster and not tensorflow and not browser' -n 5 --dist loadgroup $(ARGS)

tensorflow: $(WITH_TENSORFLOW)  ## test jobs of TensorFlow, with and without parameter servers
	@$(BIN)/python -m pytest -m tensorflow tests/integration/hooks tests/local $(ARGS)

browser: $(WITH_BROWSER)  ## test the dashboard in a real browser: Debian's chromium
	@$(BIN)/python -m pytest -m 'browser or not browser' tests/browser $(ARGS)

frameworks: $(WITH_FRAMEWORKS)  ## test how frameworks save and load under faults; ARGS="-k pickle"
	@$(BIN)/python -m pytest -m frameworks tests/frameworks $(ARGS)

SIM = $(if $(filter command% environment%,$(origin SEEDS)),sim)  # only if SEEDS are asked for

test-all: test exhaustive tensorflow frameworks browser $(SIM)  ## run all tests, cluster tests only if KUBECONFIG names one; SEEDS=10000 also simulates
	@if test -n "$$KUBECONFIG"; then $(MAKE) cluster-test MARKED=cluster; \
	else echo "KUBECONFIG is not set: the cluster tests were not run"; fi

coverage: $(WITH_COVERAGE)  ## measure the coverage of `make test`; the cores need 97 % of their branches; ARGS="tests/unit"
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -m '$(USUAL)' -n 4 --dist loadgroup $(ARGS); \
	tests=$$?; $(BIN)/coverage combine --quiet && $(BIN)/python -m tests.covered && exit $$tests

mutation: $(WITH_COVERAGE)  ## check that a test fails for each of 300 wrong lines in the master's core; ARGS="--seed 20"
	@$(BIN)/python -m tests.mutation $(ARGS)

format: $(INSTALLED)  ## format the code with ruff
	@$(BIN)/ruff check --quiet --fix-only . && $(BIN)/ruff format .

sim: $(INSTALLED)  ## simulate both cores over SEEDS (10000) seeds from FIRST_SEED (0)
	@$(BIN)/python -m tests.simulation --first $(FIRST_SEED) --seeds $(SEEDS) --jobs $$(nproc)
	@$(BIN)/python -m tests.simulation --ps --first $(FIRST_SEED) --seeds $$(( ($(SEEDS) + 9) / 10 )) --jobs $$(nproc)

bench: $(INSTALLED)  ## measure recovery times of torchrun and Outrider, into benchmarks/out
	@$(BIN)/python benchmarks/recovery.py

docs: $(WITH_DOCS)  ## the documentation site, into site/; a broken link, anchor or a page outside the navigation fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet $(ARGS)

cluster-test: $(INSTALLED)  ## run the tests on the cluster in KUBECONFIG; ARGS="-k preempted"
	@test -n "$$KUBECONFIG" || { echo "KUBECONFIG: must name a cluster whose nodes have the images (tests/cluster)"; exit 1; }
	@$(BIN)/python -m pytest -m '$(MARKED)' -n 2 --dist loadgroup --no-loadscope-reorder $(if $(filter tests/%,$(ARGS)),,tests/cluster) $(ARGS)

image:  ## build and push IMAGE=REGISTRY/NAME:TAG, and write manifests/overlays/image with it (PUSH=no, TOOL=podman)
	@test -n "$(IMAGE)" || { echo "IMAGE: must be set: make image IMAGE=registry.example/outrider/sidecar:0.1.0"; exit 1; }
	@manifests/image.sh "$(IMAGE)"

clean:  ## remove all files that the targets have created
	@rm -rf .venv build dist site *.egg-info demo-out benchmarks/out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache mutants .coverage .coverage.*
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
