# Every target sets up what it needs in .venv; nothing is installed by hand.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CONSUMERS := $(VENV)/.consumers
TRAIN := $(VENV)/.train
BENCH := $(VENV)/.bench
REASONING := $(VENV)/.reasoning
PUFFERLIB := pufferlib-core==3.0.23 pyro-ppl pyro-api opt-einsum nvidia-ml-py rich-argparse  # it asks for another torch, with CUDA
WORKERS ?= 3  # on two cores: many tests wait for processes

.PHONY: help setup train-setup interop-setup interop demo docs pictures test everywhere quick check format bench bench-peers bench-train clean

help:
	@echo "make demo    collect rollouts with a real local model (about a minute)"
	@echo "make test    the whole test suite; on the other Pythons found here (3.11 to 3.13), the tests of each part (7 GB of other programs in .interop)"
	@echo "make check   formatting, lint, types"
	@echo "make quick   the tests of each part, without whole commands and slow ones (a minute and a half)"
	@echo "make docs    the documentation site, into site/"
	@echo "make pictures   the pictures of README and docs, from real runs (two minutes; needs Chromium)"
	@echo "make train-setup   what training needs: torch, numba, gymnasium (then .venv/bin/velo train --list)"
	@echo "make everywhere   the whole suite on the other Pythons found here, with torch as it comes (6 GB each)"
	@echo "make interop   Velodrome beside the real programs of others, vLLM included (3 GB more)"
	@echo "make bench   speed and memory beside the floor, as ratios; what profiling costs; whether verdicts come true; the viewer on a million rollouts"
	@echo "make bench-peers   a rollout here and in verifiers and inspect-ai, in turns (an hour; 1 GB of other programs in .interop)"
	@echo "make bench-train   training beside other trainers, recipes over five seeds, time to threshold, worker processes, what is learned (hours, on one thread)"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Velodrome needs Python 3.11 or newer; this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else 0'
	@echo "setting up $(VENV) (once, about a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e ".[local,math,parquet,dev]"
	@touch $(READY)

$(CONSUMERS): $(READY)
	@echo "adding what the exports are tested with: TRL, datasets, torch (once, one to two minutes)"
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e ".[consumers]"
	@touch $(CONSUMERS)

train-setup: $(TRAIN)

$(TRAIN): $(READY)
	@echo "adding what training needs: torch, numba, gymnasium, tensorboard, wandb, optuna, onnx, av, mettagrid, Box2D, PettingZoo (once, one to two minutes)"
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e ".[train,tensorboard,wandb,sweep,onnx,video,mettagrid,box2d,pettingzoo]"
	@$(BIN)/python -c 'from velodrome.training.envs.env_names import KINDS, no_wheel; why = no_wheel(KINDS["mettagrid"]); why and print(why)'
	@touch $(TRAIN)

$(REASONING): $(READY)
	@echo "adding reasoning-gym (once; it compiles a small library)"
	@$(BIN)/python scripts/test_needs.py compiler headers
	@if $(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e ".[reasoning-gym]"; then touch $(REASONING); \
	elif [ "$$CI" = true ]; then exit 1; else echo "reasoning-gym cannot be installed; its tests are skipped"; fi

interop-setup: $(READY)
	@$(BIN)/python tests/interop/programs.py

# The programs that take gigabytes, too.
interop: $(READY) $(CONSUMERS)
	@$(BIN)/python tests/interop/programs.py --large
	@VELODROME_LARGE=1 $(BIN)/pytest tests/interop

demo: $(READY)
	@$(BIN)/python examples/demo.py

docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "open site/index.html; with search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

pictures: $(READY) $(TRAIN)
	@$(BIN)/velo model pull > /dev/null
	@$(BIN)/python scripts/test_needs.py chromium
	@$(BIN)/python scripts/pictures.py

test: $(READY) $(CONSUMERS) $(TRAIN) $(REASONING)
	@$(BIN)/velo model pull > /dev/null
	@$(BIN)/python scripts/test_needs.py
	@$(BIN)/python tests/interop/programs.py
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not alone"
	@$(BIN)/pytest -m alone
	@$(BIN)/python scripts/everywhere.py --quick -n $(WORKERS) --dist worksteal

everywhere: $(READY)
	@$(BIN)/velo model pull > /dev/null
	@$(BIN)/python scripts/test_needs.py
	@$(BIN)/python tests/interop/programs.py
	@$(BIN)/python scripts/everywhere.py -n $(WORKERS) --dist worksteal

quick: $(READY) $(BENCH)
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not slow" --ignore tests/shown --ignore tests/docs/test_run_pages.py

check: $(READY) $(TRAIN)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: $(READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(READY) $(REASONING)
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

$(BENCH): $(TRAIN)
	@echo "adding what training is compared with: stable-baselines3, PufferLib (once)"
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e ".[train,bench]"
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps $(PUFFERLIB) || echo "PufferLib has no wheel here; the others are measured without it"
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
