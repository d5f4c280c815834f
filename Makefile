# `make tune` and `make test` are all a fresh machine with Python 3.11 needs: they set up .venv themselves.
SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
BUILD := build/models
PACKAGES := autotune search costmodels schedules tuning_logs
FAST := tests/search_tests tests/costmodels_tests tests/tuning_logs_tests tests/autotune_tests/graph_tests
KILLS ?= 200
MINUTES ?= 120
# Seconds of each load of `make sanitize`.
SANITIZE_S ?= 60
ROTATION ?= 0
# Most seconds of one group of slow tests: a run of .ci/run is to end within 35 minutes.
GROUP_S ?= 1300
# Tests that run side by side. Each worker begins with half of the suite and steals from the other when it is done, so that
# none waits for one large file. Kernels are timed one at a time on a machine all the same.
WORKERS ?= 2
COUNT ?= 100
# Seconds that random layers are measured for the shipped prior; START is the first network's seed.
RECORD_S ?= 600
START ?= 0
ACTION ?= run
ONLY ?=
BASE ?= HEAD~1
GUARD ?= squeezenet shufflenet
BENCH ?=

# The first interpreter that really is a 3.11: a version manager's shim may exist and fail.
PYTHON ?= $(shell for p in python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && echo $$p && break; done)

.PHONY: prior evidence bench-guard help setup tune test test-fast test-slow test-full check conformance conformance-tuned bench cuda-cubins fuzz mutation kills sanitize soak zoo strangers deployed docs site terminal clean
.DELETE_ON_ERROR:

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## / — /'

setup: $(STAMP)  ## a virtual environment with everything pinned, made once

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 found: install it, or name it with 'make PYTHON=/path/to/python3.11'" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench,cuda,test]'
	@touch $@

$(BUILD)/%.onnx: tests/models/*.py | $(STAMP)
	$(BIN)/python -m tests.models $* $@

tune: $(STAMP) $(BUILD)/squeezenet.onnx  ## tune SqueezeNet (random weights) for this machine in a minute
	$(BIN)/tune run $(BUILD)/squeezenet.onnx --budget 60s

test: $(STAMP)  ## every test but the slow ones
	$(BIN)/python -m pytest -q -m 'not slow' -n $(WORKERS) --dist worksteal --durations=25

test-fast: $(STAMP)  ## search, cost models, logs and graphs, without slow and endurance tests
	$(BIN)/python -m pytest -q -m 'not slow and not endurance' $(FAST)

test-slow: $(STAMP)  ## a fifth of the slow tests: make test-slow ROTATION=0 (to 4); fails when it takes GROUP_S seconds
	@timeout --kill-after=60 --signal=INT $(GROUP_S) $(BIN)/python -m pytest -v --durations=15 --rotation=$(ROTATION) || \
		{ code=$$?; test $$code != 124 || echo "group $(ROTATION) of the slow tests takes more than $(GROUP_S) s" >&2; exit $$code; }

test-full: $(STAMP)  ## every test, the slow ones too
	$(BIN)/python -m pytest -q --durations=25

fuzz: $(STAMP)  ## random graphs, wide layers, changed real graphs, seldom written operators and 16-bit graphs against ONNX Runtime: make fuzz COUNT=1000 START=0
	$(BIN)/python -m tests.fuzz --count $(COUNT) --start $(START)

mutation: $(STAMP)  ## wrong kernels on purpose, compiled and in assembly: how many of them the check of measured kernels rejects
	$(BIN)/python -m tests.mutation --count 800

kills: $(STAMP)  ## tuning runs, their workers and servers killed at random moments: make kills KILLS=200
	$(BIN)/python -m tests.kills --count $(KILLS)

sanitize: $(STAMP)  ## the core of sessions and C libraries under address, undefined-behaviour and thread sanitizers
	TUNE_SANITIZE_S=$(SANITIZE_S) $(BIN)/python -m pytest -q tests/autotune_tests/backends_tests/cpu_tests/test_core_load.py

soak: $(STAMP)  ## runs, resumes and sessions while disk, memory and clock misbehave: make soak MINUTES=120
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

check: $(STAMP)  ## ruff (lint and format), mypy --strict, stamps of the pages' figures, sentences and names, and imports of the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.evidence check
	$(BIN)/python -m tests.docs sentences
	$(BIN)/mypy --strict $(addprefix -p ,$(PACKAGES))
	@said=$$($(BIN)/python -m pytest --collect-only --quiet --numprocesses 0) || { echo "$$said" | tail -40; exit 1; }

conformance: $(STAMP)  ## ONNX's node suite, some minutes; rewrites docs/conformance.md
	rm -f build/conformance.jsonl
	$(BIN)/python -m tests.conformance.onnx_nodes --page docs/conformance.md

conformance-tuned: $(STAMP)  ## the same with a random config of every kernel
	rm -f build/conformance-tuned.jsonl
	$(BIN)/python -m tests.conformance.onnx_nodes --tuned --page docs/conformance.md

zoo: $(STAMP)  ## fresh exports and trained models of public packages, imported, tuned and compared; writes build/zoo.md; 5 GB of packages, some hours
	test -x build/zoo/venv/bin/python || $(PYTHON) -m venv build/zoo/venv
	build/zoo/venv/bin/python -m pip install --quiet '.[zoo]'
	build/zoo/venv/bin/python -m tests.zoo.exports build/zoo/exports
	build/zoo/venv/bin/python -m tests.zoo.quantised build/zoo/exports build/zoo/quantised
	$(BIN)/python -m tests.zoo.shipped build/zoo/trained
	$(BIN)/python -m tests.zoo build/zoo/exports build/zoo/quantised build/zoo/trained --effort standard --rounds 20 --page build/zoo.md

strangers: $(STAMP)  ## exports of architectures outside zoo and tests, built with first guesses and verified; writes build/strangers.md; 5 GB of packages, an hour
	test -x build/zoo/venv/bin/python || $(PYTHON) -m venv build/zoo/venv
	build/zoo/venv/bin/python -m pip install --quiet '.[zoo]'
	build/zoo/venv/bin/python -m tests.zoo.strangers build/zoo/strangers
	$(BIN)/python -m tests.zoo build/zoo/strangers --untuned --results build/strangers.jsonl --page build/strangers.md

deployed: $(STAMP)  ## exports of models that people deploy, built with first guesses, verified and compared; 5 GB of packages, two hours
	test -x build/zoo/venv/bin/python || $(PYTHON) -m venv build/zoo/venv
	build/zoo/venv/bin/python -m pip install --quiet '.[zoo]'
	build/zoo/venv/bin/python -m tests.zoo.deployed build/zoo/deployed
	$(BIN)/python -m tests.zoo build/zoo/deployed --effort instant --rounds 20 --results build/deployed.jsonl

bench: $(STAMP)  ## tune, time against ONNX Runtime and OpenVINO (fp32 and its default), and rewrite the tables of docs/benchmarks.md and README; half an hour
	$(BIN)/python -m research $(BENCH)
	$(BIN)/python -m tests.docs figures README.md docs/benchmarks.md

prior: $(STAMP)  ## what ships of random layers for first guesses: measure more of them on this machine, and fit anew
	$(BIN)/python -m research.prior record --seconds $(RECORD_S) --seed $(START)
	$(BIN)/python -m research.prior train

evidence: $(STAMP)  ## run the commands behind the figures of README and docs and renew them: make evidence ONLY=tuning-log
	$(BIN)/python -m tests.evidence $(ACTION) $(ONLY)

bench-guard: $(STAMP)  ## this tree against another commit in turn, artifacts and tuner: make bench-guard BASE=HEAD~1
	$(BIN)/python -m research.guard $(BASE) $(GUARD) --rounds 24

cuda-cubins: $(STAMP)  ## every light model and the encoder as GPU machine code for sm_80 and sm_90, inspected; needs no GPU
	$(BIN)/python -m research.gpu.cubins

docs: $(STAMP)  ## the references, from help and docstrings, the golden list of errors, and the README's table, from docs/benchmarks.md
	$(BIN)/typer autotune.cli.main utils docs --name tune --title "Command line" --output docs/cli.md
	$(BIN)/python -m tests.docs panels docs/cli.md
	$(BIN)/python -m tests.docs api docs/api.md
	$(BIN)/python -m tests.docs errors tests/golden/errors.md
	$(BIN)/python -m tests.docs figures README.md docs/benchmarks.md

terminal: $(STAMP) $(BUILD)/squeezenet.onnx  ## the terminal output of README and tutorial, by a run on this machine; keep it idle
	$(BIN)/python -m tests.docs terminal $(BUILD)/squeezenet.onnx README.md docs/tutorial.md

site: $(STAMP)  ## these pages as a website in build/site, readable offline; a dead link is an error
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@! grep -rnE --include='*.html' '<(script|link|img)[^>]*(src|href)="https?://' build/site

clean:  ## remove what make made, but not the virtual environment
	rm -rf build .pytest_cache .mypy_cache .ruff_cache
