"""Recipes: found by name, file or function, changed by arguments, keys and losses of a user's own, given a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import velodrome
from tests.support.seed_003 import SEED, THINKY
from tests.support.small_run import SMALL, Reference, metrics, needs_mettagrid, same, trained, weights
from tests.support.small_sweep import swept
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
        ("zzz", "--list"),
        ("cvc/thinky", "./file.py"),
        ("none.py:a", "none.py: no such file"),
        ("~nobody-of-that-name/mine.py", "~nobody-of-that-name/mine.py: no such file"),
    ],
)
def test_an_unknown_recipe_is_answered_with_the_nearest(name: str, part: str):
    with pytest.raises(InputError) as caught:
        find(name)
    (line,) = caught.value.problems
    assert part in line


def test_a_function_is_a_recipe_with_typed_values_and_keys_are_set_over_its_arguments():
    def mine(envs: int = 2) -> RunSettings:
        return RunSettings(env=EnvSettings(num_envs=envs))

    settings = resolve(make_recipe("mine", mine), {"envs": 8, "trainer.gamma": 0.5}).settings
    assert (settings.env.num_envs, settings.trainer.gamma) == (8, 0.5)
    assert resolve(make_recipe("mine", mine), {"env.num_envs": 16, "envs": 8}).settings.env.num_envs == 16


def test_a_file_is_a_recipe_by_the_function_of_its_name_or_by_one_that_is_named(tmp_path: Path):
    path = written(tmp_path, MINE)
    assert settings_of(path, "size=40", 'names=["a", "b"]', "seed=3") == RunSettings(
        run="a-b", seed=3, env=EnvSettings(name="extractor_hub_40")
    )
    assert settings_of(f"{path}:other", "run=x").run == "x"
    assert find(path).text == "Mine."


@pytest.mark.parametrize(
    ("function", "words", "parts"),
    [
        ("mine", ["share=x", "sise=4"], ["share: ", 'unknown key "sise"; did you mean "size"?']),
        ("mine", ["names=a"], ["names: "]),
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


LANDER = {"env__name": "gymnasium:LunarLander-v3", "supervised__steps": 0}
METTAGRID = {"env__name": "mettagrid:extractor_hub", "supervised__steps": 0}


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("tensorboard", "tensorboard", lambda folder, _: trained(folder, output__tensorboard=True)),
        ("tensorboard", "tensorboard", lambda folder, _: swept(folder, more={"output.tensorboard": True})),
        ("wandb", "wandb", lambda folder, _: trained(folder, output__wandb=True)),
        ("optuna", "sweep", lambda folder, _: swept(folder, method="tpe")),
        ("Box2D", "box2d", lambda folder, _: trained(folder, **LANDER)),
        pytest.param("mettagrid", "mettagrid", lambda folder, _: trained(folder, **METTAGRID), marks=needs_mettagrid),
        ("onnxscript", "onnx", lambda folder, policy: policy.export(folder / "x.onnx")),
    ],
)
def test_without_a_package_one_line_says_what_to_install_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: Reference, package: str, extra: str, use: Any
):
    policy = velodrome.load_policy(reference("mlp").folder)
    monkeypatch.setitem(sys.modules, package, None)
    users = ("gymnasium.envs.box2d", "mettagrid.", "velodrome.training.envs.mettagrid_env")
    for name in [name for name in sys.modules if name.startswith(users)]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(InputError, match=rf"^[^\n]*velodrome\[{extra}\][^\n]*$"):
        use(tmp_path, policy)
    assert list(tmp_path.iterdir()) == []


OWN_LOSS = """
from pydantic import Field
from velodrome.training.losses import Loss
from velodrome.training.settings import LossSettings, LossTerm, RunSettings

class SquareSettings(LossSettings):
    coef: float = Field(0.0, ge=0, description="weight")
    start: int = Field(640, ge=0, description="first agent step")

    def terms(self, name, start, total):
        yield LossTerm(name, f"{__name__}:Square", self, self.start, total)

class Square(Loss):
    reports = ("square",)

    def __call__(self, batch, policy, values_B, step):
        square = values_B.square().mean()
        return self.term.settings.coef * square, square.detach().reshape(1)

def mine() -> RunSettings:
    return RunSettings(run="small", losses={"square": SquareSettings()})
"""


def test_a_recipe_adds_a_loss_of_its_own_with_settings_a_range_and_a_metric(tmp_path: Path, reference: Reference):
    path = tmp_path / "mine.py"
    path.write_text(OWN_LOSS)
    values = {**SMALL, "output.train_dir": str(tmp_path)}
    idle, active = (velodrome.train(str(path), **{**values, "losses.square.coef": coef}) for coef in (0, "1e1"))
    for result in (idle, active):
        lines = metrics(result.folder)
        assert [line["step"] for line in lines if "square" in line] == list(range(704, 1025, 64))
        assert [line["phase"] for line in lines] == ["supervised"] * 8 + ["ppo"] * 8
    assert same(weights(idle.folder), weights(reference("mlp").folder))
    assert not same(weights(active.folder), weights(idle.folder))
    assert metrics(active.folder)[-1]["square"] < metrics(idle.folder)[-1]["square"]
    assert idle.folder != active.folder


def test_the_folder_is_the_name_and_eight_digits_of_what_decides_the_weights():
    settings = RunSettings(run="msb_profile")
    assert run_folder(settings) == Path("train_dir") / f"msb_profile_{digest(settings)}"
    assert len(digest(settings)) == 8
    for word in ("seed=1", "trainer.gamma=0.9", "env.num_envs=8", "policy.core=lstm", "ppo.clip=0.1"):
        name, _, text = word.partition("=")
        assert digest(apply(settings, {name: text})) != digest(settings)
    assert digest(apply(settings, {"ppo.value_coef": "1"})) == digest(apply(settings, {"ppo.value_coef": 1.0}))
    later = apply(settings, {"trainer.total_timesteps": "5e6", "output.dashboard": "false", "output.train_dir": "a"})
    assert run_folder(later) == Path("a") / run_folder(settings).name
