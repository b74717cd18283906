# `make study` reproduces the paper's GRID results; `make test` runs all checks. Each sets up .venv by itself, once.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

# What depends on floating-point kernels. `make test-kernels` runs it as a processor without vector units would.
NUMERICAL := tests/model tests/query tests/learning tests/test_nn.py tests/test_uncertainty.py tests/test_rng.py \
	$(addprefix tests/r2r/test_r2r_,instruction.py language.py navigation.py oracle.py task.py)

.PHONY: study test test-ray test-kernels maze docs release-check clean

study: $(READY)
	$(BIN)/apil study grid --out runs/study/grid

maze: $(READY)
	$(BIN)/apil study maze --out runs/study/maze

test: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist loadfile --ignore tests/studies/test_ray.py --ignore tests/site

# A cluster of three nodes on this machine. Apart from the others: processes of Ray take long to start beside them.
test-ray: $(READY)
	timeout -k 30 600 $(BIN)/pytest tests/studies/test_ray.py

test-kernels: $(READY)
	ATEN_CPU_CAPABILITY=default $(BIN)/pytest -n 2 --dist loadfile $(NUMERICAL)

# The documentation: site/index.html, or `python -m http.server -d site` to search it too. A warning is an error; so is
# a link that leads nowhere, and, where there is a browser, what cannot be read or reached.
docs: $(READY) .venv/docs-ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/pytest tests/site

# The wheel, installed and used in a new environment. Another interpreter: make release-check RELEASE_PYTHON=python3.13
release-check: $(READY)
	$(BIN)/python benchmarks/release.py $(addprefix --python ,$(RELEASE_PYTHON))

.venv/docs-ready: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

# torch first and alone: its pinned build satisfies every later request, so no GPU packages are pulled in.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,minari]'
	touch $(READY)

clean:
	rm -rf .venv site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
