"""Recipes: found by name or by file, changed by their arguments and by keys, counted and given a folder."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from patience import DEADLINE_S
from seed_003 import SEED, THINKY

from velodrome.cli.main import main
from velodrome.errors import InputError
from velodrome.training.overrides import apply
from velodrome.training.plan import Plan, Stretch, agents_each, misfits, notes, plan
from velodrome.training.recipes import attempt, find, listed, names, resolve
from velodrome.training.run.folder import digest, folder
from velodrome.training.schedule import horizon, phase_at, rollout_steps
from velodrome.training.settings import (
    ActionSupervisedAndCriticConfig,
    EnvSettings,
    EvaluatorConfig,
    ProfilerSettings,
    Settings,
    TrainerSettings,
)

ROOT = Path(__file__).parent.parent.parent


def settings_of(name: str, *words: str) -> Settings:
    return resolve(find(name), words).settings


def problems_of(name: str, *words: str) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        resolve(find(name), words)
    return caught.value.problems


def written(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


MINE = """
from __future__ import annotations
from velodrome.training.settings import EnvSettings, Settings

def mine(size: int = 30, names: list[str] | None = None, share=0.5) -> Settings:
    '''Mine.'''
    return Settings(run="-".join(names or ["mine"]), env=EnvSettings(name=f"extractor_hub_{size}"))

def other(run: str) -> Settings:
    return Settings(run=run)

def wrong():
    return {"run": "a"}

def broken(envs: int = 0) -> Settings:
    return Settings(env=EnvSettings(num_envs=envs))

def raising(envs: int = 0) -> Settings:
    return Settings(seed=1 // envs)
"""


def test_the_command_of_the_seed_gives_these_settings():
    profiler = ProfilerSettings(enabled=True, wait_steps=2, warmup_steps=2, active_steps=4, record_shapes=True)
    assert settings_of(THINKY, *SEED) == Settings(
        run="msb_profile",
        env=EnvSettings(name="extractor_hub_30", num_envs=16, agents=4),
        supervised=ActionSupervisedAndCriticConfig(steps=5000),
        ppo=find(THINKY).function().ppo,
        trainer=find(THINKY).function().trainer.model_copy(update={"total_timesteps": 10_000, "profiler": profiler}),
        evaluator=EvaluatorConfig(evaluate_local=False),
    )


def test_the_recipe_of_the_seed_rolls_out_512_agent_steps_and_prints_no_tree_unasked():
    settings = settings_of(THINKY)
    assert (settings.supervised.steps, settings.trainer.total_timesteps) == (500_000, 2_000_000)
    assert (plan(settings, 64).horizon * 64, settings.trainer.timing_interval) == (512, 10)
    assert not settings.supervised.profiled
    assert not settings.trainer.profiler.enabled


def test_every_recipe_is_listed_with_a_line_and_gives_settings_as_it_is():
    assert [name for name, _ in listed()] == names() == ["cartpole", THINKY]
    for name, text in listed():
        assert text.endswith(".")
        assert settings_of(name) == find(name).function()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("cvc.thinky_supervised", f"no recipe 'cvc.thinky_supervised'; did you mean \"{THINKY}\"?"),
        ("cartpol", "no recipe 'cartpol'; did you mean \"cartpole\"?"),
        ("zzz", "no recipe 'zzz'; --list shows them all"),
        ("cvc", "no recipe 'cvc'; --list shows them all"),
        ("cvc/thinky", "no recipe 'cvc/thinky'; a file is given as ./file.py"),
        ("./none.py", "none.py: no such file"),
        ("none.py:a", "none.py: no such file"),
        ("~nobody-of-that-name/mine.py", "~nobody-of-that-name/mine.py: no such file"),
    ],
)
def test_a_recipe_nobody_knows_is_answered_with_the_nearest(name: str, line: str):
    with pytest.raises(InputError) as caught:
        find(name)
    assert caught.value.problems == (line,)


def test_a_file_is_a_recipe_by_the_function_of_its_name_or_by_one_that_is_named(tmp_path: Path):
    path = written(tmp_path, MINE)
    assert settings_of(path, "size=40", 'names=["a", "b"]', "seed=3") == Settings(
        run="a-b", seed=3, env=EnvSettings(name="extractor_hub_40")
    )
    assert settings_of(f"{path}:other", "run=x").run == "x"
    assert find(path).text == "Mine."


@pytest.mark.parametrize(
    ("function", "words", "lines"),
    [
        ("mine", ["size=1.5"], ["size is a whole number, not '1.5'"]),
        ("mine", ["share=x", "sise=4"], ["share is a number, not 'x'", 'no setting sise; did you mean "size"?']),
        ("mine", ["names=a"], ["names is JSON for list[str] or none, not 'a'"]),
        ("other", [], ["recipe {path}:other needs run=…"]),
        ("wrong", [], ["recipe {path}:wrong: returns dict, not the Settings of velodrome.training.settings"]),
        ("broken", [], ["recipe {path}:broken: num_envs: Input should be greater than or equal to 1"]),
        (
            "raising",
            [],
            ["recipe {path}:raising: ZeroDivisionError: integer division or modulo by zero ({path}:19 in raising)"],
        ),
    ],
)
def test_a_mistake_in_or_with_a_recipe_is_a_line(tmp_path: Path, function: str, words: list[str], lines: list[str]):
    path = written(tmp_path, MINE)
    assert problems_of(f"{path}:{function}", *words) == tuple(line.format(path=path) for line in lines)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def mine(", "{path}: SyntaxError: '(' was never closed ({path}:1)"),
        ("import no_such_thing", "{path}: ModuleNotFoundError: No module named 'no_such_thing' ({path}:1 in <module>)"),
        ("mine = 3", "{path}: no function mine; a recipe is a function"),
        (
            "from velodrome.training.settings import Settings\ndef a() -> Settings: ...",
            "{path}: no function mine; there are a: give {path}:a",
        ),
        ("def mine(*all): ...", "recipe {path}: *all cannot be given by name; give its arguments names"),
        ("def mine(a: 'Nope'): ...", "recipe {path}: NameError: name 'Nope' is not defined"),
    ],
)
def test_a_file_that_is_no_recipe_is_told_why(tmp_path: Path, text: str, line: str):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        find(path)
    assert caught.value.problems == (line.format(path=path),)


BESIDE = """
import colorsys
import beside_while
from velodrome.training.settings import Settings

def mine() -> Settings:
    import beside_later
    return Settings(run=f"{beside_while.word}-{beside_later.word}-{hasattr(colorsys, 'rgb_to_hsv')}")
"""


def test_a_file_imports_what_stands_beside_it_then_and_later_and_what_is_installed_goes_before(
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


def test_mistakes_in_words_arguments_and_keys_are_told_together():
    assert problems_of(
        THINKY, "seed", "num_envs=0", "trainer.profiler.enabeld=True", "supervised_step=5", "seed=-1"
    ) == (
        "'seed': no \"=\"; write it as key=value",
        "num_envs is a whole number from 1 to 65_536, not '0'",
        'no setting trainer.profiler.enabeld; did you mean "trainer.profiler.enabled"?',
        'no setting supervised_step; did you mean "supervised_steps"?',
        "seed is a whole number from 0 and below 2_147_483_648, not '-1'",
    )


def test_what_was_changed_is_known_with_its_value_before():
    assert resolve(find(THINKY), ["run=a", "supervised_steps=0", "seed=0"]).changed() == {
        "run": ("thinky", "a"),
        "supervised.steps": (500_000, 0),
    }


METHOD_3 = """
from metta.rl.loss.action_supervised_and_critic{which} import ActionSupervisedAndCriticConfig
from velodrome.training.settings import Settings

def mine(supervised_steps: int = 640) -> Settings:
    return Settings(supervised=ActionSupervisedAndCriticConfig(steps=supervised_steps))
"""


@pytest.mark.parametrize(("which", "printed"), [("", False), ("_profiled", True)])
def test_a_recipe_that_imports_the_profiled_settings_differs_in_what_is_printed_and_in_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, printed: bool
):
    monkeypatch.syspath_prepend(str(ROOT))
    settings = settings_of(written(tmp_path, METHOD_3.format(which=which)), "supervised.coef=0.5")
    plain = ActionSupervisedAndCriticConfig(steps=640, coef=0.5, profiled=printed)
    assert settings.supervised.model_dump() == plain.model_dump()
    assert digest(settings) == digest(Settings(supervised=plain))
    assert isinstance(settings.supervised, ActionSupervisedAndCriticConfig)


def test_a_real_metta_package_is_never_hidden_by_ours(tmp_path: Path):
    package = tmp_path / "metta" / "rl"
    package.mkdir(parents=True)
    (tmp_path / "metta" / "__init__.py").write_text("theirs = True\n")
    paths = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; sys.path.append({str(tmp_path)!r})"
    code = f"{paths}; import metta; print(metta.theirs)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_without_the_source_tree_a_recipe_that_imports_metta_is_told_what_to_import(tmp_path: Path):
    path = written(tmp_path, METHOD_3.format(which=""))
    code = (
        "import sys; sys.modules['metta'] = None\n"
        "from velodrome.cli.main import main; sys.exit(main(['train', sys.argv[1], '--dry-run']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stderr) == (
        2,
        f"velo: {path}: no package metta.rl here: it stands in the source tree, beside tools/run.py; "
        "or import from velodrome.training.settings\n",
    )


def test_the_profiling_script_profiles_ten_rollouts_of_each_phase_and_evaluates_nothing():
    settings = settings_of(str(ROOT / "recipes/experiment/cvc/profile_thinky_supervised.py"))
    assert plan(settings, 64).stretches == (
        Stretch("supervised", True, 5120, 10, 20),
        Stretch("ppo", False, 4928, 10, 80),
    )
    assert (settings.trainer.total_timesteps, settings.trainer.timing_interval) == (10_000, 10)
    assert settings.supervised.profiled
    assert settings.trainer.profiler.enabled
    assert not settings.evaluator.evaluate_local


def test_phases_are_counted_in_whole_steps_of_all_agents():
    settings = settings_of(THINKY, *SEED)
    assert plan(settings, 64) == Plan(
        64, 8, (Stretch("supervised", True, 5056, 10, 20), Stretch("ppo", False, 4992, 10, 80))
    )


@pytest.mark.parametrize(
    ("words", "stretches"),
    [
        (["supervised_steps=0", "trainer.total_timesteps=512"], (Stretch("ppo", False, 512, 1, 8),)),
        (["supervised_steps=1e9", "trainer.total_timesteps=512"], (Stretch("supervised", True, 512, 1, 2),)),
        (
            ["supervised_steps=1", "trainer.total_timesteps=65"],
            (Stretch("supervised", True, 64, 1, 1), Stretch("ppo", False, 64, 1, 4)),
        ),
        (["supervised_steps=0", "trainer.total_timesteps=576"], (Stretch("ppo", False, 576, 2, 12),)),
    ],
)
def test_a_phase_without_steps_is_none_and_a_rollout_is_cut_where_its_phase_ends(
    words: list[str], stretches: tuple[Stretch, ...]
):
    assert plan(settings_of(THINKY, *words), 64).stretches == stretches


def test_ppo_with_the_teacher_kept_for_a_while_is_counted_apart():
    words = ["trainer.total_timesteps=4096", "supervised_steps=1000"]
    kept = ["supervised.keep_coef=0.1", "supervised.keep_steps=1024"]
    assert plan(settings_of(THINKY, *words, *kept), 64).stretches == (
        Stretch("supervised", True, 1024, 2, 4),
        Stretch("ppo", True, 1024, 2, 16),
        Stretch("ppo", False, 2048, 4, 32),
    )


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["supervised_steps=512", "trainer.total_timesteps=1024"], []),
        (
            ["supervised_steps=5_000", "trainer.total_timesteps=10_000"],
            [
                "a phase ends with a step of all 64 agents: "
                "supervised.steps 5,000 -> 5,056, trainer.total_timesteps 10,000 -> 10,048"
            ],
        ),
        (
            ["supervised_steps=64", "supervised.keep_coef=1", "supervised.keep_steps=100"],
            ["a phase ends with a step of all 64 agents: supervised.steps + keep_steps 164 -> 192"],
        ),
        (
            ["supervised_steps=5_000", "trainer.total_timesteps=5_000"],
            [
                "a phase ends with a step of all 64 agents: trainer.total_timesteps 5,000 -> 5,056",
                "no PPO phase: supervised.steps=5000 leaves nothing of trainer.total_timesteps=5000",
            ],
        ),
        (
            ["supervised_steps=1_000", "trainer.total_timesteps=1_010"],
            [
                "a phase ends with a step of all 64 agents: supervised.steps 1,000 -> 1,024",
                "no PPO phase: supervised.steps=1000 leaves nothing of trainer.total_timesteps=1010",
            ],
        ),
        (["policy.core=lstm", "trainer.bptt_horizon=8"], []),
        (["trainer.bptt_horizon=5"], []),
        (
            ["policy.core=lstm"],
            [
                "trainer.bptt_horizon=16: a gradient goes back 8, the steps of a rollout; "
                "trainer.batch_size=1024 would be 16"
            ],
        ),
        (
            ["policy.core=lstm", "trainer.bptt_horizon=3"],
            ["trainer.bptt_horizon=3: the 8 steps of a rollout are cut into 2 x 3 and a rest of 2"],
        ),
    ],
)
def test_where_the_plan_is_not_quite_what_was_asked_for_is_noted(words: list[str], lines: list[str]):
    given = {"supervised_steps": "512", "trainer.total_timesteps": "1024", **dict(word.split("=") for word in words)}
    settings = settings_of(THINKY, *(f"{name}={value}" for name, value in given.items()))
    assert notes(settings, plan(settings, 64)) == lines


def test_settings_that_an_environment_does_not_know_are_noted():
    settings = settings_of("cartpole", "env.max_steps=50", "env.agents=3", "trainer.total_timesteps=1024")
    assert notes(settings, plan(settings, 8)) == [
        "env.agents: says nothing to gymnasium:CartPole-v1",
        "env.max_steps: says nothing to gymnasium:CartPole-v1",
    ]


def test_the_plan_counts_the_rollouts_that_the_schedule_gives():
    settings = settings_of(THINKY, "supervised_steps=777", "supervised.keep_coef=1", "supervised.keep_steps=333")
    settings = apply(settings, {"trainer.total_timesteps": "5001", "trainer.batch_size": "384"})
    done, counted = 0, Counter[tuple[str, bool]]()
    while done < settings.trainer.total_timesteps:
        phase = phase_at(settings, done)
        done += 64 * rollout_steps(phase, done, 64, horizon(settings, 64))
        counted[phase.name, phase.asks_teacher] += 1
    stretches = plan(settings, 64).stretches
    assert {(one.phase, one.asks_teacher): one.rollouts for one in stretches} == counted
    assert sum(one.agent_steps for one in stretches) == done


@pytest.mark.parametrize(
    ("name", "each"), [("extractor_hub_30", 4), ("gymnasium:CartPole-v1", 1), ("mettagrid:any", None)]
)
def test_agents_of_an_environment_are_known_where_they_can_be(name: str, each: int | None):
    assert agents_each(Settings(env=EnvSettings(name=name))) == each


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            ["base_missions=extractor_hob_30"],
            [
                'env.name: no environment "extractor_hob_30"; did you mean "extractor_hub_30"? '
                "(extractor_hub_<size>, gymnasium:<id>, mettagrid:<mission>)"
            ],
        ),
        (["base_missions=extractor_hub_7"], ["env.name: extractor_hub_7: the size is from 8 to 200"]),
        (
            ["base_missions=extractor_hub_8", "agents=9", "trainer.batch_size=432"],
            ["env.agents: 9 are too many for extractor_hub_8; at most 8, or a larger size"],
        ),
        (
            ["env.name=gymnasium:CartPole-v1", "supervised_steps=64"],
            ["supervised.steps=64: gymnasium:CartPole-v1 has no teacher; give 0"],
        ),
        (["env.name=gymnasium:CartPole-v1", "supervised_steps=0"], []),
        (
            ["env.name=mettagrid:arena", "supervised_steps=0", "supervised.keep_steps=9", "supervised.keep_coef=1"],
            ["supervised.keep_steps=9: mettagrid:arena has no teacher; give 0"],
        ),
        (["env.name=gymnasium:CartPole-v1", "supervised_steps=0", "supervised.keep_steps=9"], []),
        (
            ["env.name=gym:CartPole-v1"],
            [
                'env.name: no environment "gym:CartPole-v1"; did you mean "gymnasium:CartPole-v1"? '
                "(extractor_hub_<size>, gymnasium:<id>, mettagrid:<mission>)"
            ],
        ),
        (
            ["env.name=gymnasium:"],
            ['env.name: no environment "gymnasium:" (extractor_hub_<size>, gymnasium:<id>, mettagrid:<mission>)'],
        ),
        (["base_missions=extractor_hub_8", "agents=8"], []),
    ],
)
def test_what_could_not_be_trained_is_known_before_anything_is_made(words: list[str], lines: list[str]):
    assert misfits(settings_of(THINKY, *words)) == lines


HOB = 'env.name: no environment "extractor_hob_30"; did you mean "extractor_hub_30"? '
HOB += "(extractor_hub_<size>, gymnasium:<id>, mettagrid:<mission>)"
GAMMA = "trainer.gamma is a number from 0 to 1, not '2'"
BATCH = "trainer.batch_size={}: not a multiple of the {} agents that act at once (environments x agents of each); {}"


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["base_missions=extractor_hob_30", "trainer.gamma=2"], [GAMMA, HOB]),
        (["env.name=extractor_hob_30", "trainer.gamma=2"], [GAMMA, HOB]),
        (["env.name=extractor_hob_30", "seed"], ["'seed': no \"=\"; write it as key=value", HOB]),
        (
            ["base_missions=extractor_hob_30", "num_envs=0"],
            ["num_envs is a whole number from 1 to 65_536, not '0'", HOB],
        ),
        (
            ["trainer.batch_size=500", "trainer.gamma=2"],
            [GAMMA, BATCH.format(500, 64, "448 or 512 would be")],
        ),
        (
            ["trainer.batch_size=100"],
            [
                "trainer.minibatch_size: larger than trainer.batch_size; there would be no minibatch",
                BATCH.format(100, 64, "64 or 128 would be"),
            ],
        ),
        # what may have been about the same thing is not judged by what would be there without it
        (["trainer.batch_size=x", "num_envs=48"], ["trainer.batch_size is a whole number from 1 on, not 'x'"]),
        (
            ["trainer.batchsize=768", "num_envs=48"],
            ['no setting trainer.batchsize; did you mean "trainer.batch_size"?'],
        ),
        (
            ["trainer=[768]", "num_envs=48", "env.agents=4"],
            [
                "trainer is a group of settings, not '[768]'; give one of its keys "
                f"({', '.join(TrainerSettings.model_fields)})"
            ],
        ),
        (
            ["env.name=gymnasium:CartPole-v1", "supervised.steps=none"],
            ["supervised.steps is a whole number from 0 on, not 'none'"],
        ),
        (
            ["base_missions=extractor_hub_8", "env.agents=none", "agents=9"],
            ["env.agents is a whole number from 1 to 64, not 'none'"],
        ),
    ],
)
def test_a_mistake_in_a_word_hides_no_mission_and_no_batch_size_that_could_not_be_trained(
    words: list[str], lines: list[str]
):
    tried = attempt(find(THINKY), words)
    assert tried.resolved is not None
    assert [*tried.problems, *misfits(tried.resolved.settings, tried.unread)] == lines


def test_the_command_tells_both_at_once(capsys: pytest.CaptureFixture[str]):
    assert main(["train", THINKY, "base_missions=extractor_hob_30", "trainer.gamma=2", "--json"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "velo: --json goes with --dry-run",
        f"velo: {GAMMA}",
        f"velo: {HOB}",
    ]


def test_missions_are_judged_without_numpy():
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from velodrome.cli.main import main\n"
        f"sys.exit(main(['train', {THINKY!r}, 'base_missions=extractor_hub_7', '--dry-run']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (2, "velo: env.name: extractor_hub_7: the size is from 8 to 200\n")


def test_the_environment_itself_refuses_what_was_told_before_it_was_made():
    pytest.importorskip("numba")
    from velodrome.training.envs import make_env

    for name, agents in (("extractor_hub_7", 4), ("extractor_hub_201", 4), ("extractor_hub_8", 9)):
        settings = Settings(env=EnvSettings(name=name, agents=agents, num_envs=1))
        with pytest.raises(InputError) as caught:
            make_env(settings.env, 0)
        assert list(caught.value.problems) == misfits(settings)


def test_a_home_that_is_nobodys_is_a_mistake():
    with pytest.raises(InputError, match=r"output.train_dir=~nobody-of-that-name/a: there is no such home folder"):
        folder(apply(Settings(), {"output.train_dir": "~nobody-of-that-name/a"}))


def test_the_folder_is_the_name_and_eight_digits_of_what_decides_the_weights():
    settings = Settings(run="msb_profile")
    assert folder(settings) == Path("train_dir") / f"msb_profile_{digest(settings)}"
    assert len(digest(settings)) == 8
    assert set(digest(settings)) <= set("0123456789abcdef")


def test_a_longer_run_and_another_output_go_on_in_the_same_run():
    first = Settings()
    later = apply(first, {"trainer.total_timesteps": "5e6", "output.dashboard": "false", "output.train_dir": "a"})
    assert digest(later) == digest(first)
    assert folder(later) == Path("a") / folder(first).name


@pytest.mark.parametrize("word", ["seed=1", "trainer.gamma=0.9", "env.num_envs=8", "policy.core=lstm", "ppo.clip=0.1"])
def test_another_setting_is_another_folder(word: str):
    name, _, text = word.partition("=")
    assert digest(apply(Settings(), {name: text})) != digest(Settings())


def test_a_number_written_another_way_is_the_same_folder():
    assert digest(apply(Settings(), {"ppo.value_coef": "1"})) == digest(apply(Settings(), {"ppo.value_coef": "1.0"}))
    assert digest(Settings(trainer=TrainerSettings(learning_rate=1))) == digest(
        apply(Settings(), {"trainer.learning_rate": "1"})
    )
