# make setup    creates .venv once, with the CPU or the GPU set of packages

.PHONY: setup

setup:
	@PYTHON="$(PYTHON)" SET="$(SET)" sh scripts/setup.sh
