# `make study` reproduces the paper's GRID results; `make test` runs all checks. Each sets up .venv by itself, once.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: study test maze clean

study: $(READY)
	$(BIN)/apil study grid --out results/grid

maze: $(READY)
	$(BIN)/apil study maze --out results/maze

test: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist loadfile

# torch first and alone: its pinned build satisfies every later request, so no GPU packages are pulled in.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,minari]'
	touch $(READY)

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
