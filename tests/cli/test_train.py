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
from patience import DEADLINE_S
from seed_003 import SEED, THINKY

from velodrome.cli.main import main
from velodrome.cli.train_screen import Interrupt
from velodrome.profiling.traces.torch_trace import read_torch_trace
from velodrome.training.settings import RunSettings

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


def test_the_recipes_are_listed_with_a_line_each(capsys: pytest.CaptureFixture[str]):
    assert main(["train", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "acrobot",
        "cartpole",
        THINKY,
        "lunar_lander",
        "memory",
        "mountain_car_continuous",
        "pendulum",
    ]
    assert all(len(line.split()) > 3 for line in lines)


def test_help_for_a_recipe_has_every_argument_and_key_with_range_default_and_meaning(
    capsys: pytest.CaptureFixture[str],
):
    assert main(["train", THINKY, "-h"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == f"usage: velo train {THINKY} [name=value ...] [--dry-run [--json]]"
    assert "supervised_steps a whole number from 0 2_000_000 agent steps with the teacher" in lines
    assert "trainer.total_timesteps a whole number from 1 6_000_000 agent steps in all, both phases" in lines
    assert "policy.core mlp or lstm mlp lstm: remembers within an episode (truncated BPTT)" in lines
    assert "trainer.profiler.compress true or false false write .json.gz" in lines


def test_a_dry_run_prints_the_tree_what_was_changed_what_will_be_done_and_the_folder(
    capsys: pytest.CaptureFixture[str],
):
    assert main(["train", THINKY, *SEED, "--dry-run"]) == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[:4] == ["run msb_profile was thinky", "seed 0", "env", "name extractor_hub_30"]
    assert "\n  profiler\n    enabled             true              was false\n" in out
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


def test_a_dry_run_as_json_holds_settings_that_can_be_read_again(capsys: pytest.CaptureFixture[str]):
    assert main(["train", "cartpole", "seed=3", "--dry-run", "--json"]) == 0
    result = orjson.loads(capsys.readouterr().out)
    settings = RunSettings(**result["settings"])
    assert list(result["settings"]) == [
        name for name in RunSettings.model_fields if name not in ("losses", "curriculum")
    ]
    assert (result["recipe"], settings.seed, settings.env.name) == ("cartpole", 3, "gymnasium:CartPole-v1")
    assert result["changed"] == {"seed": {"from": 0, "to": 3}}
    phase = {
        "phase": "ppo",
        "asks_teacher": False,
        "agent_steps": 200_000,
        "rollouts": 196,
        "updates": 3128,
        "stage": "",
    }
    assert result["plan"] == {"agents": 8, "horizon": 128, "phases": [phase], "notes": []}


def test_agents_that_only_the_environment_knows_are_not_counted(capsys: pytest.CaptureFixture[str]):
    some = ["env.name=mettagrid:some", "supervised_steps=0"]
    assert main(["train", THINKY, *some, "--dry-run"]) == 0
    assert "agents  known once the environment is loaded" in capsys.readouterr().out
    assert main(["train", THINKY, *some, "--dry-run", "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["plan"] is None


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (
            ["cartpole", "--dry-rum", "--seed=3", "--json", "x", "trainer.bach_size=3"],
            ['did you mean "--dry-run"?', "seed=…", "'x'", '"trainer.bach_size"; did you mean'],
        ),
        (["--list", "--dry-rum"], ['"--dry-run"']),
        (["-h", "--dry-rum"], ['"--dry-run"']),
        (["cartpole", "--help", "--dry-rum"], ['"--dry-run"']),
        (["cartpole", "--dry-run=1"], ["--dry-run"]),
        (["cartpole", f"trainer.total_timesteps={'9' * 30}", "--dry-run", "--json"], ["trainer.total_timesteps: "]),
        ([], ["--list"]),
        (["seed=3"], ["--list"]),
        (["cartpol"], ['"cartpole"']),
        ([THINKY, "base_missions=extractor_hub_7"], ["extractor_hub_7"]),
        ([THINKY, "base_missions=extractor_hub_7", "--dry-run"], ["extractor_hub_7"]),
        ([THINKY, "trainer.batch_size=1000"], ["trainer.batch_size=1000"]),
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


def test_without_torch_everything_but_training_works_and_training_says_what_to_install(tmp_path: Path):
    commands = [["--list"], ["-h"], ["cartpole", "-h"], ["cartpole", "--dry-run"], ["cartpole"]]
    done = python(tmp_path, "-c", BARE.format(commands=commands), PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stderr.count("\n"), "make train-setup" in done.stderr) == (0, 1, True)
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 0, 2]"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_run_py_is_the_same_program_from_any_folder(tmp_path: Path):
    words = [THINKY, *SEED, "--dry-run"]
    here = python(tmp_path, "-m", "velodrome.cli.main", "train", *words, PYTHONPATH=str(ROOT))
    there = python(tmp_path, RUN, *words)
    assert (there.returncode, there.stdout, there.stderr) == (here.returncode, here.stdout, here.stderr)
    assert here.returncode == 0
    assert os.access(RUN, os.X_OK)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "plain"),
    [
        (["./tools/run.py", THINKY, *SEED], [RUN, THINKY, *SEED]),
        (["python", "recipes/experiment/cvc/profile_thinky_supervised.py", "seed=3"], [SCRIPT, "seed=3"]),
    ],
    ids=["run.py", "script"],
)
def test_the_commands_of_the_seed_run_by_uv_are_the_same_programs(tmp_path: Path, command: list[str], plain: list[str]):
    uv = Path(sysconfig.get_path("scripts")) / "uv"  # of the extra dev
    offline = {
        "UV_OFFLINE": "1",
        "UV_CACHE_DIR": str(tmp_path),
        "UV_PROJECT_ENVIRONMENT": sys.prefix,
        "TMPDIR": str(tmp_path),
    }
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [uv, "run", "--no-sync", *command, "--dry-run"],
        cwd=ROOT,
        env={**environ, **offline},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    expected = python(ROOT, *plain, "--dry-run")
    assert (done.returncode, done.stdout, done.stderr) == (0, expected.stdout, "")
    assert "folder" in done.stdout


def test_uv_fetches_torch_only_with_an_extra_that_asks_for_it_and_then_the_one_of_the_constraints():
    result = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    heavy = re.compile(r"(torch|numba|gymnasium|mettagrid|stable-baselines3|trl|tensorboard)\b")
    assert [each for each in result["project"]["dependencies"] if heavy.match(each)] == []
    assert "dependency-groups" not in result  # uv installs the group dev unasked
    assert [each for each in result["project"]["optional-dependencies"]["train"] if heavy.match(each)]
    assert result["tool"]["uv"] == {"constraint-dependencies": pins}


def test_a_python_with_nothing_installed_is_told_what_to_do(tmp_path: Path):
    done = python(tmp_path, "-S", "-I", RUN, "cartpole")
    assert done.returncode == 2
    assert done.stderr.startswith("run.py: ")
    assert done.stderr.endswith(" has nothing installed; `make train-setup`, then .venv/bin/python tools/run.py …\n")


@pytest.mark.slow
def test_the_plan_is_on_the_screen_before_torch_is_imported(tmp_path: Path):
    """Python prints every import to stderr too, in order: what is imported inside torch before torch itself."""
    words = ("train", "cartpole", "run=early", "trainer.total_timesteps=64", "evaluator.evaluate_local=False")
    done = python(tmp_path, "-X", "importtime", "-m", "velodrome.cli.main", *words)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    large = re.compile(r"import time: .*\| +(torch|numpy|numba)\b")
    before = lines[: next(at for at, line in enumerate(lines) if large.match(line))]
    said = [line for line in before if not line.startswith("import time:")]
    assert said[0].startswith("train_dir/early_")
    assert ": cartpole, 64 agent steps ppo; 8 agents at once" in said[0]
    assert said[-1] == "loading torch and the environment"
    assert any("import time:" in line and line.endswith(" torch") for line in lines)


@pytest.mark.slow
def test_a_run_ends_with_a_line_of_what_was_done_and_one_without_anything_to_do_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    small = ["base_missions=extractor_hub_10", "num_envs=4", "agents=2", "env.max_steps=16", "policy.hidden=8"]
    small += ["trainer.batch_size=64", "trainer.minibatch_size=64", "evaluator.episodes=2", "output.dashboard=False"]
    command = ["train", THINKY, *small, "supervised_steps=60", "trainer.total_timesteps=128"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    result = orjson.loads(out)
    tried = r"evaluation, sampled: return [\d.-]+ \(standard error [\d.]+\) "
    tried += rf"over 2 episodes, agreement of the likeliest action [\d.]+%; {result['folder']}"
    speeds = r"\(supervised [\d,]+ steps/s, ppo [\d,]+ steps/s\)"
    _, second, *_, last = err.splitlines()
    assert second == "a phase ends with a step of all 8 agents: supervised 60 -> 64"
    assert re.fullmatch(rf"128 agent steps in [\d.]+ m?s of training {speeds}; {tried}", last), last
    assert main(command) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(f"nothing was left to train: all 128 agent steps were done before; {tried}", last), last


def test_ctrl_c_is_counted_once_a_second_and_the_second_one_stops_at_once():
    times, lines = iter((5.0, 5.01, 5.99, 6.0)), list[str]()
    interrupt, stopped = Interrupt(lines.append, clock=lambda: next(times)), []
    before = signal.getsignal(signal.SIGINT)
    with interrupt.installed():
        for _ in range(4):
            try:
                signal.raise_signal(signal.SIGINT)
                stopped.append(False)
            except KeyboardInterrupt:
                stopped.append(True)
    assert (stopped, interrupt.requested, len(lines)) == ([False, False, False, True], True, 1)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_signal_of_another_kind_stops_at_once_whenever_it_comes():
    interrupt = Interrupt(clock=lambda: 0.0)
    with interrupt.installed():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


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
def test_a_run_that_is_stopped_twice_says_how_it_goes_on(tmp_path: Path):
    (tmp_path / "stopped.py").write_text(STOPPED.replace("SIGNALS", "signal.SIGINT, signal.SIGTERM"))
    done = python(tmp_path, RUN, "./stopped.py")
    assert (done.returncode, "Traceback" in done.stderr) == (130, False), done.stderr
    kept = list(tmp_path.glob("train_dir/*/checkpoint_*"))  # the second signal may have come after the epoch
    way = "; the same command resumes from " if kept else "stopped at once; the same command starts over"
    assert way in done.stderr.splitlines()[-1]


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
def test_the_profiling_script_prints_the_tree_every_ten_rollouts_and_writes_a_trace(tmp_path: Path):
    done = python(tmp_path, SCRIPT, "run=mine")
    assert (done.returncode, orjson.loads(done.stdout)["evaluation"]) == (0, None), done.stderr
    heads = [line for line in done.stderr.splitlines() if line.startswith("Rollout Timing Profile")]
    assert heads == ["Rollout Timing Profile (agent_step=5120)", "Rollout Timing Profile (agent_step=10048)"]
    assert len(list(tmp_path.glob("train_dir/mine_*/profiler_trace_*.json"))) == 1
