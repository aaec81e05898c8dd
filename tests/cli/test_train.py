"""`velo train`, `tools/run.py` and the profiling script: one program, usable without torch until it trains."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.patience import DEADLINE_S
from tests.support.seed_003 import SEED, THINKY
from velodrome.cli.main import main
from velodrome.training.torch_trace import read_torch_trace
from velodrome.training.verbs.train import Interrupt

ROOT = Path(__file__).parent.parent.parent
RUN = str(ROOT / "tools" / "run.py")
SCRIPT = str(ROOT / "recipes" / "experiment" / "cvc" / "profile_thinky_supervised.py")
# `velo`, where what training needs is not installed
BARE = """
import sys
sys.modules.update(dict.fromkeys(("torch", "numba", "numpy", "gymnasium")))
from velodrome.cli.main import main
print([main(["train", *words]) for words in {commands}])
"""


def python(cwd: Path, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *argv]
    environ = {**os.environ, **env}
    return subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )


def test_a_dry_run_prints_the_settings_what_was_changed_what_will_be_done_and_the_folder(
    capsys: pytest.CaptureFixture[str],
):
    assert main(["train", THINKY, *SEED, "--dry-run"]) == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[:3] == ["run msb_profile was thinky", "seed 0", "env.name extractor_hub_30"]
    assert "trainer.profiler.enabled true was false" in lines
    assert lines[-7:-2] == [
        "",
        "agents 256 = 64 environments x 4",
        "rollout 2 steps of all agents = 512 agent steps",
        "supervised 5,120 agent steps: 10 rollouts, 20 updates, with the teacher",
        "ppo 5,120 agent steps: 10 rollouts, 40 updates, with the teacher",
    ]
    assert lines[-2].startswith("folder train_dir/msb_profile_")
    assert lines[-1] == (
        "note a phase ends with a step of all 256 agents: supervised 5,000 -> 5,120, ppo 10,000 -> 10,240"
    )


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["cartpole", "x", "trainer.bach_size=3"], ["'x'", '"trainer.bach_size"; did you mean']),
        (["cartpole", "--dry-rum", "--seed=3"], ['did you mean "--dry-run"?', "--seed"]),
        (["cartpole", f"trainer.total_timesteps={'9' * 30}", "--dry-run", "--json"], ["trainer.total_timesteps: "]),
        ([], ["--list"]),
        (["cartpol"], ['"cartpole"']),
        ([THINKY, "base_missions=extractor_hub_7"], ["extractor_hub_7"]),
        ([THINKY, "trainer.batch_size=1000", "--dry-run"], ["trainer.batch_size=1000"]),
    ],
)
def test_every_mistake_is_a_line_the_exit_code_is_two_and_no_folder_is_made(
    velo: Any, tmp_path: Path, argv: list[str], parts: list[str]
):
    done = velo("train", *argv)
    assert (done.code, done.out) == (2, "")
    lines = done.err.splitlines()
    assert all(part in line for part, line in zip(parts, lines, strict=True)), lines
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_without_torch_everything_but_training_works_and_training_says_what_to_install(tmp_path: Path):
    commands = [["--list"], ["-h"], ["cartpole", "-h"], ["cartpole", "--dry-run"], ["cartpole"]]
    done = python(tmp_path, "-c", BARE.format(commands=commands), PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stderr.count("\n"), "make train-setup" in done.stderr) == (0, 1, True)
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 0, 2]"
    assert list(tmp_path.iterdir()) == []
    bare = python(tmp_path, "-S", "-I", RUN, "cartpole")  # a Python with nothing installed
    assert (bare.returncode, "make train-setup" in bare.stderr, "Traceback" in bare.stderr) == (2, True, False)


def test_under_uv_run_training_installs_what_it_lacks_and_says_so_and_elsewhere_nothing(tmp_path: Path):
    code = """
import sys, velodrome.training.start as start
sys.modules.update(dict.fromkeys(("torch", "numba", "numpy")))
sys.prefix = sys.base_prefix + "/.venv"
start.set_up(print, lambda command: print("ran", command[3:]) or int(command[-1] != "ensurepip"))
"""
    plain = python(tmp_path, "-c", code, PYTHONPATH=str(ROOT), UV_RUN_RECURSION_DEPTH="1")
    said, *ran = plain.stdout.splitlines()
    assert ("torch, numba" in said, said.startswith("setting up ")) == (True, True)
    assert all(word in ran[-1] for word in ("'install'", "constraints.txt", "velodrome[train]"))
    assert plain.stderr.splitlines()[-1].startswith("velodrome.errors.InputError: training needs torch, numba, numpy")
    environ = {name: value for name, value in os.environ.items() if name != "UV_RUN_RECURSION_DEPTH"}
    other = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (other.returncode, other.stdout, other.stderr) == (0, "", "")


def test_uv_fetches_torch_only_with_an_extra_that_asks_for_it_and_then_the_one_of_the_constraints():
    result = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    heavy = re.compile(r"(torch|numba|gymnasium|mettagrid|stable-baselines3|trl|tensorboard)\b")
    assert [each for each in result["project"]["dependencies"] if heavy.match(each)] == []
    assert "dependency-groups" not in result  # uv installs the group dev unasked
    assert [each for each in result["project"]["optional-dependencies"]["train"] if heavy.match(each)]
    assert result["tool"]["uv"] == {"constraint-dependencies": pins}


def test_ctrl_c_is_counted_once_a_second_and_the_second_one_or_another_signal_stops_at_once():
    before = signal.getsignal(signal.SIGINT)
    for times, signals in (
        ((5.0, 5.01, 5.99, 6.0), [signal.SIGINT] * 4),
        ((5.0, 5.0), [signal.SIGTERM, signal.SIGINT]),
    ):
        now, lines, stopped = iter(times), list[str](), []
        interrupt = Interrupt(lines.append, clock=lambda now=now: next(now))
        with interrupt.installed():
            for number in signals:
                try:
                    signal.raise_signal(number)
                    stopped.append(False)
                except KeyboardInterrupt:
                    stopped.append(True)
        assert (stopped.index(True), interrupt.requested, len(lines)) == (len(signals) - 1, True, 1)
    assert signal.getsignal(signal.SIGINT) is before


STOPPED = """
import atexit, os, signal, threading, time
from pathlib import Path
from velodrome.training.settings import EnvSettings, RunSettings, TrainerSettings

def stop():
    while not any(path.stat().st_size for path in Path().glob("train_dir/*/metrics.jsonl")):
        time.sleep(0.001)
    for number in (SIGNALS):
        os.kill(os.getpid(), number)

atexit.register(print, "late")
threading.Thread(target=stop, daemon=True).start()

def stopped() -> RunSettings:
    env = EnvSettings(name="extractor_hub_10", num_envs=4, agents=2)
    return RunSettings(env=env, trainer=TrainerSettings(total_timesteps=10**12, batch_size=64, minibatch_size=64))
"""


@pytest.mark.slow
def test_a_run_that_is_stopped_ends_at_once_with_its_result_so_that_a_second_ctrl_c_finds_nothing(tmp_path: Path):
    (tmp_path / "stopped.py").write_text(STOPPED.replace("SIGNALS", "signal.SIGINT, signal.SIGINT"))
    done = python(tmp_path, RUN, "./stopped.py")
    assert done.returncode == 130, done.stderr
    assert "stopped after agent step " in done.stderr.splitlines()[-1]
    result = orjson.loads(done.stdout)  # nothing but the result: what is done on the way out was left out
    assert (result["finished"], result["folder"].startswith("train_dir/run_")) == (False, True)


@pytest.mark.slow
def test_the_command_of_the_seed_trains_and_leaves_a_trace_where_the_seed_looks_for_it(tmp_path: Path):
    done = python(tmp_path, RUN, THINKY, *SEED)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    result = orjson.loads(done.stdout)
    (trace,) = tmp_path.glob("train_dir/msb_profile_*/profiler_trace_*.json")
    assert (result["finished"], result["step"], tmp_path / result["folder"]) == (True, 10_240, trace.parent)
    assert "Rollout Timing Profile" not in done.stderr
    assert "USDT" not in done.stderr
    counts = {each["name"]: each["count"] for each in read_torch_trace(trace)["parts"]}
    assert [counts[name] for name in ("epoch", "rollout", "update", "advantages")] == [4, 4, 4, 4]
    assert min(counts[name] for name in ("environment step", "nim_calls", "forward", "backward", "optimizer")) >= 4


@pytest.mark.slow
def test_the_profiling_script_prints_a_tree_per_ten_rollouts_and_phase_and_writes_a_trace(tmp_path: Path):
    done = python(tmp_path, SCRIPT, "run=mine")
    assert (done.returncode, orjson.loads(done.stdout)["evaluation"]) == (0, None), done.stderr
    heads = [line for line in done.stderr.splitlines() if line.startswith("Rollout Timing Profile")]
    assert heads == [f"Rollout Timing Profile (agent_step={step})" for step in (5120, 7680, 10048)]
    teacher = [line for line in done.stderr.splitlines() if "Teacher Total" in line]
    assert ["(not asked)" in line for line in teacher] == [False, False, True]  # once the kickstart is at zero
    assert len(list(tmp_path.glob("train_dir/mine_*/profiler_trace_*.json"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "plain"),
    [
        (["./tools/run.py", THINKY, *SEED], ["-m", "velodrome.cli.main", "train", THINKY, *SEED]),
        (["python", "recipes/experiment/cvc/profile_thinky_supervised.py", "seed=3"], [SCRIPT, "seed=3"]),
    ],
    ids=["run.py", "script"],
)
def test_the_commands_of_the_seed_run_by_uv_are_the_same_programs(tmp_path: Path, command: list[str], plain: list[str]):
    uv = Path(sysconfig.get_path("scripts")) / "uv"  # of the extra dev
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environ |= {"UV_OFFLINE": "1", "UV_PROJECT_ENVIRONMENT": sys.prefix}
    environ |= dict.fromkeys(("UV_CACHE_DIR", "TMPDIR"), str(tmp_path))
    done = subprocess.run(
        [uv, "run", "--no-sync", *command, "--dry-run"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    expected = python(tmp_path, *plain, "--dry-run", PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stdout, done.stderr) == (0, expected.stdout, "")
    assert "folder" in done.stdout
