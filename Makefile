# make setup    creates .venv once, with the CPU or the GPU set of packages
# make sweep    runs the main job and renders its page: results/pocket/report/index.html
# make test     lint, types, tests; what CI runs
# make test-slow  the tests that `make test` leaves out: clusters of several nodes, and their deaths

.PHONY: setup sweep test test-slow lint

PYTHON_IN_VENV = .venv/bin/python

setup:
	@PYTHON="$(PYTHON)" SET="$(SET)" sh scripts/setup.sh

# A sweep with failed samples (exit code 1) is still reported, and then fails the target.
sweep: setup
	@$(PYTHON_IN_VENV) run.py sweep pocket --out results/pocket; done=$$?; \
	test $$done -eq 2 || $(PYTHON_IN_VENV) run.py report results/pocket; exit $$done

lint: setup
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

test: lint
	@$(PYTHON_IN_VENV) -m pytest -n 2

test-slow: setup
	@$(PYTHON_IN_VENV) -m pytest -m cluster
