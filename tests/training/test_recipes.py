"""Recipes: found by name, by file or as a function, changed by their arguments and by keys, and given a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from patience import DEADLINE_S
from seed_003 import SEED, THINKY

from velodrome.errors import InputError
from velodrome.training.assignments import apply, parse
from velodrome.training.recipes import ResolvedRun, find, make_recipe, resolve
from velodrome.training.run.train_folder import digest, run_folder
from velodrome.training.schedule import make_plan
from velodrome.training.settings import (
    ActionSupervisedAndCriticConfig,
    EnvSettings,
    ProfilerSettings,
    RunSettings,
)

ROOT = Path(__file__).parent.parent.parent


def resolved(name: str, *words: str) -> ResolvedRun:
    problems: list[str] = []
    return resolve(find(name), parse(words, problems), problems)


def settings_of(name: str, *words: str) -> RunSettings:
    return resolved(name, *words).settings


def problems_of(name: str, *words: str) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        resolved(name, *words)
    return caught.value.problems


def written(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


MINE = """
from __future__ import annotations
from velodrome.training.settings import EnvSettings, RunSettings

def mine(size: int = 30, names: list[str] | None = None, share=0.5) -> RunSettings:
    '''Mine.'''
    return RunSettings(run="-".join(names or ["mine"]), env=EnvSettings(name=f"extractor_hub_{size}"))

def other(run: str) -> RunSettings:
    return RunSettings(run=run)

def wrong():
    return {"run": "a"}

def broken(envs: int = 0) -> RunSettings:
    return RunSettings(env=EnvSettings(num_envs=envs))

def raising(envs: int = 0) -> RunSettings:
    return RunSettings(seed=1 // envs)
"""


def test_the_command_of_the_seed_gives_these_settings():
    profiler = ProfilerSettings(enabled=True, wait_steps=2, warmup_steps=2, active_steps=4, record_shapes=True)
    plain = find(THINKY).function(supervised_steps=5000)
    assert settings_of(THINKY, *SEED) == RunSettings(
        run="msb_profile",
        env=EnvSettings(name="extractor_hub_30", num_envs=64, agents=4),
        policy=plain.policy,
        supervised=plain.supervised,
        ppo=plain.ppo,
        trainer=plain.trainer.model_copy(update={"total_timesteps": 10_000, "profiler": profiler}),
        evaluator=plain.evaluator.model_copy(update={"evaluate_local": False}),
    )
    assert plain.supervised.steps == 5000
    assert (make_plan(plain, 256).horizon * 256, plain.trainer.timing_interval) == (512, 10)
    assert not plain.supervised.profiled


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("cvc.thinky_supervised", f'did you mean "{THINKY}"?'),
        ("cartpol", 'did you mean "cartpole"?'),
        ("zzz", "--list"),
        ("cvc/thinky", "./file.py"),
        ("./none.py", "none.py: no such file"),
        ("none.py:a", "none.py: no such file"),
        ("~nobody-of-that-name/mine.py", "~nobody-of-that-name/mine.py: no such file"),
    ],
)
def test_an_unknown_recipe_is_answered_with_the_nearest(name: str, part: str):
    with pytest.raises(InputError) as caught:
        find(name)
    (line,) = caught.value.problems
    assert part in line


def test_a_file_is_a_recipe_by_the_function_of_its_name_or_by_one_that_is_named(tmp_path: Path):
    path = written(tmp_path, MINE)
    assert settings_of(path, "size=40", 'names=["a", "b"]', "seed=3") == RunSettings(
        run="a-b", seed=3, env=EnvSettings(name="extractor_hub_40")
    )
    assert settings_of(f"{path}:other", "run=x").run == "x"
    assert find(path).text == "Mine."


def test_a_function_is_a_recipe_with_typed_values():
    def mine(envs: int = 2) -> RunSettings:
        return RunSettings(env=EnvSettings(num_envs=envs))

    settings = resolve(make_recipe("mine", mine), {"envs": 8, "trainer.gamma": 0.5}).settings
    assert (settings.env.num_envs, settings.trainer.gamma) == (8, 0.5)


@pytest.mark.parametrize(
    ("function", "words", "parts"),
    [
        ("mine", ["size=1.5"], ["size: "]),
        ("mine", ["share=x", "sise=4"], ["share: ", 'unknown key "sise"; did you mean "size"?']),
        ("mine", ["names=a"], ["names: "]),
        ("mine", ["size=7"], ["EnvSettings: name: extractor_hub_7"]),
        ("other", [], ['"run" is required']),
        ("wrong", [], ["returns dict, not RunSettings"]),
        ("broken", [], ["EnvSettings: num_envs: "]),
        ("raising", [], ["ZeroDivisionError: integer division or modulo by zero ({path}:19 in raising)"]),
    ],
)
def test_a_mistake_in_or_with_a_recipe_is_a_line(tmp_path: Path, function: str, words: list[str], parts: list[str]):
    path = written(tmp_path, MINE)
    lines = problems_of(f"{path}:{function}", *words)
    assert len(lines) == len(parts)
    assert all(part.format(path=path) in line for part, line in zip(parts, lines, strict=True)), lines


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("def mine(", "SyntaxError: '(' was never closed ({path}:1)"),
        ("import no_such_thing", "No module named 'no_such_thing' ({path}:1 in <module>)"),
        ("mine = 3", "no function mine"),
        ("from velodrome.training.settings import RunSettings\ndef a() -> RunSettings: ...", "use {path}:a"),
        ("def mine(*all): ...", "*all"),
        ("def mine(a: 'Nope'): ...", "name 'Nope' is not defined"),
    ],
)
def test_a_file_without_a_recipe_is_refused_with_the_reason(tmp_path: Path, text: str, part: str):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        find(path)
    (line,) = caught.value.problems
    assert path in line
    assert part.format(path=path) in line


BESIDE = """
import colorsys
import beside_while
from velodrome.training.settings import RunSettings

def mine() -> RunSettings:
    import beside_later
    return RunSettings(run=f"{beside_while.word}-{beside_later.word}-{hasattr(colorsys, 'rgb_to_hsv')}")
"""


def test_a_file_imports_what_lies_beside_it_and_installed_packages_take_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    for name in ("while", "later"):
        written(tmp_path, f"word = {name!r}", f"beside_{name}.py")
    written(tmp_path, "", "colorsys.py")
    path = written(tmp_path, BESIDE)
    assert settings_of(path).run == "while-later-True"
    find(path)
    assert sys.path.count(str(tmp_path)) == 1


def test_arguments_come_first_and_keys_are_set_over_them():
    assert settings_of(THINKY, "supervised.steps=6_000", "supervised_steps=5_000").supervised.steps == 6000


def test_mistakes_in_words_arguments_and_keys_are_reported_together():
    words = ["seed", "num_envs=0", "trainer.profiler.enabeld=True", "supervised_step=5", "seed=-1"]
    starts = ["'seed': ", "num_envs: ", 'unknown key "trainer.profiler.enabeld"', 'unknown key "supervised_step"']
    lines = problems_of(THINKY, *words)
    assert all(line.startswith(start) for line, start in zip(lines, [*starts, "seed: "], strict=True)), lines


def test_a_mistake_in_a_key_hides_no_unknown_mission():
    lines = problems_of(THINKY, "base_missions=extractor_hob_30", "trainer.gamma=2")
    assert 'did you mean "extractor_hub_30"?' in lines[0]
    assert lines[1].startswith("trainer.gamma: ")


METHOD_3 = """
from metta.rl.loss.action_supervised_and_critic{which} import ActionSupervisedAndCriticConfig
from velodrome.training.settings import RunSettings

def mine(supervised_steps: int = 640) -> RunSettings:
    return RunSettings(supervised=ActionSupervisedAndCriticConfig(steps=supervised_steps))
"""


@pytest.mark.parametrize(("which", "printed"), [("", False), ("_profiled", True)])
def test_a_recipe_that_imports_the_profiled_settings_differs_in_what_is_printed_and_in_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, printed: bool
):
    monkeypatch.syspath_prepend(str(ROOT))
    settings = settings_of(written(tmp_path, METHOD_3.format(which=which)), "supervised.coef=0.5")
    plain = ActionSupervisedAndCriticConfig(steps=640, coef=0.5, profiled=printed)
    assert settings.supervised.model_dump() == plain.model_dump()
    assert digest(settings) == digest(RunSettings(supervised=plain))
    assert isinstance(settings.supervised, ActionSupervisedAndCriticConfig)


def python(code: str, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)


def test_a_real_metta_package_is_never_hidden_by_ours(tmp_path: Path):
    (tmp_path / "metta" / "rl").mkdir(parents=True)
    (tmp_path / "metta" / "__init__.py").write_text("theirs = True\n")
    paths = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; sys.path.append({str(tmp_path)!r})"
    done = python(f"{paths}; import metta; print(metta.theirs)")
    assert (done.stdout, done.stderr) == ("True\n", "")


MAIN = "import sys; sys.modules[sys.argv[1]] = None\nfrom velodrome.cli.main import main; sys.exit(main(sys.argv[2:]))"


def test_without_the_source_tree_a_recipe_that_imports_metta_learns_what_to_import(tmp_path: Path):
    path = written(tmp_path, METHOD_3.format(which=""))
    done = python(MAIN, "metta", "train", path, "--dry-run")
    assert done.returncode == 2
    assert path in done.stderr
    assert "velodrome.training.settings" in done.stderr


def test_the_folder_is_the_name_and_eight_digits_of_what_decides_the_weights():
    settings = RunSettings(run="msb_profile")
    assert run_folder(settings) == Path("train_dir") / f"msb_profile_{digest(settings)}"
    assert len(digest(settings)) == 8
    for word in ("seed=1", "trainer.gamma=0.9", "env.num_envs=8", "policy.core=lstm", "ppo.clip=0.1"):
        name, _, text = word.partition("=")
        assert digest(apply(settings, {name: text})) != digest(settings)
    assert digest(apply(settings, {"ppo.value_coef": "1"})) == digest(apply(settings, {"ppo.value_coef": 1.0}))


def test_a_longer_run_and_another_output_are_the_same_run():
    first = RunSettings()
    later = apply(first, {"trainer.total_timesteps": "5e6", "output.dashboard": "false", "output.train_dir": "a"})
    assert run_folder(later) == Path("a") / run_folder(first).name


def test_a_home_folder_of_nobody_is_a_mistake():
    with pytest.raises(InputError, match=r"output.train_dir=~nobody-of-that-name/a"):
        run_folder(apply(RunSettings(), {"output.train_dir": "~nobody-of-that-name/a"}))
