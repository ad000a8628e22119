# Commands on a fresh machine with Python >= 3.11, git and make:
#   make conformance ADAPTER=moss_tts     set up .venv, then run the checks on one adapter
#   make test                             set up .venv, then everything that CI runs, but for:
#   make adapters                         every adapter, and every wrapper with what is known of it
#   make test-browser                     the HTML report in Chromium (Debian: chromium and chromium-driver)
# and, without a GPU:
#   make fidelity                         judge emulated CUDA by the table of what a GPU does
#   make benchmark-emulation              time its replays and captures against eager
#   make benchmark-reports                size of reports, and the time to write them
#   make examples                         the reports and pictures of docs/examples, made anew (six minutes; Chromium)
# and, with one:
#   make benchmark-runner                 the runner against doing it by hand; ARGS=--without-gpu: what needs none
# The second call installs nothing until pyproject.toml changes.

PYTHON ?= python3
ADAPTER ?= reference
ARGS ?=
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# uv rather than pip: it takes the CUDA build of torch that vllm was made for, which imports without a GPU too. Beside a
# CPU build of torch, torchvision fails to import, and vllm with it.
INSTALL := $(BIN)/uv pip install --python $(BIN)/python -e '.[vllm,dev]'

.PHONY: conformance test adapters test-browser fidelity selftest benchmark-emulation benchmark-reports benchmark-runner \
	examples lint format docs setup clean

conformance: setup
	$(BIN)/pytest --adapter=$(ADAPTER) $(ARGS)

# A run imports some 5000 modules, in each worker: where bytecode is never written, all are compiled anew each time.
unexport PYTHONDONTWRITEBYTECODE

# Tiny modules gain nothing by threads, and workers that each take every core get into each other's way.
test adapters: export OMP_NUM_THREADS ?= 1

test: lint
	$(BIN)/pytest -m "not browser" -n $(JOBS) --dist loadfile $(ARGS)

# Without CG003, which imports vllm_omni anew for each of them; `pytest --adapter=all` runs everything. In one run, since
# each worker imports vllm_omni once; only wrappers have known failures.
adapters: setup
	$(BIN)/pytest --adapter=all --adapter=all@vllm_omni --conformance-allow-known -k "not CG003" -n $(JOBS) -q $(ARGS)

test-browser: setup
	$(BIN)/pytest -m browser $(ARGS)

fidelity: setup
	$(BIN)/python -m conformance.fidelity $(ARGS)

benchmark-emulation: setup
	$(BIN)/python -m benchmarks.emulation $(ARGS)

benchmark-reports: setup
	$(BIN)/python -m benchmarks.reports $(ARGS)

benchmark-runner: setup
	$(BIN)/python -m benchmarks.runner $(ARGS)

EXAMPLES := docs/examples
EXAMPLE_ADAPTERS := mimo_audio@vllm_omni moss_tts@vllm_omni mimo_audio moss_tts

examples: setup
	$(BIN)/pytest $(EXAMPLE_ADAPTERS:%=--adapter=%) --graph-device=emulated -q \
		--conformance-json=$(EXAMPLES)/report.json --conformance-html=$(EXAMPLES)/report.html \
		--conformance-md=$(EXAMPLES)/report.md || test $$? = 1
	$(BIN)/python -m tests.report.screenshots $(EXAMPLES)/report.html $(EXAMPLES)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo "audiograph needs Python 3.11 to 3.13, found: $$($(PYTHON) --version 2>&1). Set PYTHON, e.g. make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(INSTALL) || { echo "the first try failed; trying once more"; sleep 5; $(INSTALL); }
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

docs: setup
	$(BIN)/audiograph checks --markdown > docs/checks.md

selftest: setup
	$(BIN)/python -m tests.selftest
