# demo, quick, test, test-all, test-liger, lint and docs start from nothing but Python: they make .venv, install what they need there, and run.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# two tests at a time: most of them wait for processes of their own, which take one core each
BOTH := -n 2 --dist worksteal
# each on one core: two pools of threads would wait for one another
ON_ONE_CORE := OMP_NUM_THREADS=1
# the processes that tests start need not compile Regraft themselves
COMPILE := $(BIN)/python -m compileall -q src
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
READY := $(VENV)/.ready

.PHONY: demo quick test test-all test-liger test-gpu lint docs clean

demo: $(READY)
	@$(BIN)/python scripts/demo.py

# the core, without torch: notation, structure, matching, rewriting, rules, command line
QUICK := $(addprefix tests/, dsl structure test_bodies.py test_cache.py test_cli.py test_constants.py test_contract_rules.py \
  test_decorators.py test_lock.py test_names.py test_needs.py test_rewrite.py test_rule_authors.py test_rule_pages.py \
  test_rules.py test_source.py)

quick: $(READY)
	@$(COMPILE)
	$(ON_ONE_CORE) $(BIN)/python -m pytest $(BOTH) -m "not slow" $(QUICK)

# every test but the slow ones, which are few and take most of the time, with SLOW_PART=N/M every M-th of these, too; then
# all of them
test: SELECTED := $(if $(SLOW_PART),-m "" --slow-part $(SLOW_PART),-m "not slow")
test-all: SELECTED := -m ""
test test-all: $(READY)
	@$(COMPILE)
	$(ON_ONE_CORE) $(BIN)/python -m pytest $(BOTH) $(SELECTED)

# Liger's kernels against what they replace, in Triton's interpreter, which Triton looks for when it is imported
test-liger: $(READY)
	TRITON_INTERPRET=1 $(ON_ONE_CORE) $(BIN)/python -m pytest $(BOTH) tests/liger

# operators, rules and Liger's kernels on a CUDA device, in an environment whose torch has CUDA: make test-gpu PYTHON=python3
test-gpu:
	REGRAFT_TEST_DEVICE=cuda PYTHONPATH=src $(PYTHON) -m pytest tests/ops tests/liger tests/test_rule_specifications.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/check_style.py
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/lint-imports --no-cache

# the documentation as a site in .cache/site, which opens without a server; a broken link fails
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo ".cache/site/index.html"

# torch comes first and pinned, so that nothing else chooses a build of it
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -e '.[dev,verify,split,openvino,liger]' transformers==5.23.0
	@touch $@

clean:
	rm -rf $(VENV) .cache
