# Every target sets up what it needs in .venv; nothing is installed by hand.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FULL := $(VENV)/.full
REASONING := $(VENV)/.reasoning
BENCH := $(VENV)/.bench
PIP := $(BIN)/pip install -qq --disable-pip-version-check
UV := $(BIN)/uv pip install -q --python $(BIN)/python -c lock.txt
PUFFERLIB := pufferlib-core==3.0.23 pyro-ppl pyro-api opt-einsum nvidia-ml-py rich-argparse  # it asks for another torch, with CUDA
WORKERS ?= 3  # on two cores: many tests wait for processes
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal
QUICK := api checks cli collector environments exchange golden http index profiling records resources_servers responses_api_agents \
	responses_api_models settings stats timing viewer
ELSEWHERE := browser or chaos or long
unexport PYTHONDONTWRITEBYTECODE  # tests start hundreds of processes: without bytecode each compiles what it imports

.PHONY: help setup train-setup interop-setup lock demo docs pictures test quick changed check format \
	browser chaos interop learn-long everywhere everything bench bench-peers bench-train clean

help:
	@echo "make demo      collect rollouts with a real local model (about a minute)"
	@echo "make check     formatting, lint, types"
	@echo "make quick     the logic of every part: no servers, no browser, no torch"
	@echo "make changed   the tests of what was changed since main"
	@echo "make test      what a change must pass: the seeds' commands, real processes and kills, the real small model, a browser"
	@echo "make browser   every page at every width, and the traces in real trace viewers"
	@echo "make chaos     long campaigns of kills"
	@echo "make interop   the real programs of others (7 GB in .interop; with LARGE=1 vLLM, too)"
	@echo "make learn-long   long training: each recipe solves its task"
	@echo "make everywhere   the other Pythons found here, 3.11 to 3.13"
	@echo "make everything   all of these, before a release"
	@echo "make docs      the documentation site, into site/"
	@echo "make pictures  the pictures of README and docs, from real runs (needs Chromium)"
	@echo "make train-setup   what training needs: torch, numba, gymnasium (then .venv/bin/velo train --list)"
	@echo "make bench     speed and memory as ratios; bench-peers: beside verifiers and inspect-ai; bench-train: beside other trainers"

setup: $(READY)

$(READY): pyproject.toml lock.txt
	@$(PYTHON) -c 'import sys; sys.exit("Velodrome needs Python 3.11 or newer; this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else 0'
	@echo "setting up $(VENV) (once, under a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -c lock.txt uv
	@$(UV) -e ".[local,math,parquet,dev]"
	@touch $(READY)

# Torch through pip: a looser client takes gigabytes of CUDA (constraints.txt).
$(FULL): $(READY) constraints.txt
	@echo "adding what tests and training need: torch, gymnasium, Ray and others (once, about a minute)"
	@$(PIP) -c constraints.txt torch
	@$(UV) -e ".[local,math,parquet,dev,test]"
	@$(BIN)/python -c 'from velodrome.training.envs.env_names import KINDS, no_wheel; why = no_wheel(KINDS["mettagrid"]); why and print(why)'
	@touch $(FULL)

$(REASONING): $(FULL)
	@$(BIN)/python scripts/test_needs.py compiler headers
	@if $(UV) -e ".[reasoning-gym]"; then touch $(REASONING); elif [ "$$CI" = true ]; then exit 1; \
	else echo "reasoning-gym, which compiles a small library, cannot be installed; its tests are skipped"; fi

train-setup: $(FULL)

lock: $(REASONING)
	@{ grep '^#' lock.txt; $(BIN)/uv pip freeze -q --exclude-editable --python $(BIN)/python | grep -vE '^(torch|pip)=='; } > lock.new
	@mv lock.new lock.txt

demo: $(READY)
	@$(BIN)/python examples/demo.py

docs: $(FULL)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "open site/index.html; with search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

pictures: $(FULL)
	@$(BIN)/velo model pull > /dev/null
	@$(BIN)/python scripts/test_needs.py chromium
	@$(BIN)/python scripts/pictures.py

check: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: $(READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

quick: $(READY)
	@$(PYTEST) -m "not (slow or $(ELSEWHERE))" $(QUICK:%=tests/%) tests/test_*.py

changed: $(FULL)
	@$(BIN)/python scripts/changed.py -n $(WORKERS) --dist worksteal -m "not (slow or alone or $(ELSEWHERE))"

test: $(REASONING)
	@$(BIN)/velo model pull > /dev/null
	@$(BIN)/python scripts/test_needs.py
	@$(PYTEST) -m "not ($(ELSEWHERE))" --ignore tests/interop

browser: $(FULL)
	@$(BIN)/velo model pull > /dev/null
	@$(BIN)/python scripts/test_needs.py chromium viewers
	@$(PYTEST) -m browser --ignore tests/interop

chaos: $(REASONING)
	@$(BIN)/python scripts/test_needs.py sandbox
	@$(PYTEST) -m "chaos and not alone" --ignore tests/interop
	@$(BIN)/pytest -m "chaos and alone" --ignore tests/interop

learn-long: $(FULL)
	@$(BIN)/pytest -n 2 -m long --ignore tests/interop

interop-setup: $(REASONING)
	@$(UV) -e ".[local,math,parquet,dev,test,consumers]"
	@$(BIN)/python tests/interop/programs.py $(if $(LARGE),--large)

interop: interop-setup
	@$(if $(LARGE),VELODROME_LARGE=1) $(PYTEST) tests/interop

everywhere: $(READY)
	@$(BIN)/python scripts/everywhere.py -n $(WORKERS) --dist worksteal -m "not (slow or $(ELSEWHERE))" \
		$(QUICK:%=tests/%) tests/test_*.py

everything:
	@$(MAKE) check test browser chaos learn-long interop everywhere LARGE=1

bench: $(REASONING)
	@missed=0; \
	$(BIN)/python -m benchmarks.run --json results/bench.json || missed=1; \
	$(BIN)/python -m benchmarks.profilers --json results/profilers.json || missed=1; \
	$(BIN)/python -m benchmarks.verdicts --check --json results/verdicts.json || missed=1; \
	$(BIN)/python -m benchmarks.cpu_bound --json results/cpu_bound.json || missed=1; \
	$(BIN)/python -m benchmarks.environments --json results/environments.json || missed=1; \
	$(BIN)/python -m benchmarks.workers --json results/workers.json || missed=1; \
	$(BIN)/python -m benchmarks.ray_overhead --json results/ray_overhead.json || missed=1; \
	$(BIN)/python -m benchmarks.million --json results/million.json || missed=1; \
	$(BIN)/python -m benchmarks.local_model --json results/local_model.json || missed=1; \
	$(BIN)/python -m benchmarks.sandbox --json results/sandbox.json || missed=1; \
	exit $$missed

bench-peers: $(READY)
	@$(BIN)/python -m benchmarks.peers --json results/peers.json

$(BENCH): $(FULL)
	@echo "adding what training is compared with: stable-baselines3, PufferLib (once)"
	@$(UV) -e ".[local,math,parquet,dev,test,bench]"
	@$(PIP) --no-deps $(PUFFERLIB) || echo "PufferLib has no wheel here; the others are measured without it"
	@touch $(BENCH)

bench-train: $(BENCH)
	@missed=0; \
	$(BIN)/python -m benchmarks.train --check --json results/train.json || missed=1; \
	$(BIN)/python -m benchmarks.train.solve --json results/train_solve.json || missed=1; \
	$(BIN)/python -m benchmarks.train.threshold --json results/train_threshold.json || missed=1; \
	$(BIN)/python -m benchmarks.train.workers || missed=1; \
	$(BIN)/python -m benchmarks.train.learning --check --json results/train_learning.json || missed=1; \
	$(BIN)/python -m benchmarks.train.learning --check --map long --only recipe --json results/train_learning.json || missed=1; \
	exit $$missed

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist results demo site .interop
