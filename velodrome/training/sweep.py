"""Sweeps: the same recipe with several values of some settings, trial by trial, to find the best.

Every trial is one or more ordinary runs in the sweep's folder. It is written down when it has ended, so a kill at any
moment loses none and repeats none: the same command continues with the first trial that is missing, from the last
checkpoint of its run. The values of a trial are made of the sweep's seed, the trial's number and the results of the
trials before it, by optuna's samplers. A trial that fails is recorded with its reason and stops no other.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import orjson
from pydantic import Field, model_validator

from velodrome.errors import InputError, TrainError
from velodrome.records.appender import Appender
from velodrome.settings.files import UnusableFileError, file_problem, read_document
from velodrome.settings.model import Settings
from velodrome.timing.figures import counted
from velodrome.training.assignments import apply
from velodrome.training.envs.env_names import kind_of
from velodrome.training.explain import written
from velodrome.training.recipes import Recipe, ResolvedRun, resolve
from velodrome.training.run.train_folder import digest, held, is_free, run_folder
from velodrome.training.settings import OutputSettings, RunSettings, leaves
from velodrome.training.start import refuse_without_torch

if TYPE_CHECKING:
    from velodrome.training.loop import TrainingResult

Json = dict[str, Any]
Say = Callable[[str], None]
Train = Callable[[RunSettings], "TrainingResult"]

TRIALS = "trials.jsonl"
_FORMS = "{choices: [a, b]}, {range: [low, high]} or {log: [low, high]}"
_TOP = 5
_DIGITS = 8


class SweptValues(Settings):
    """The values of one setting, in one of three forms."""

    choices: list[Any] = Field([], description="one of these")
    range: list[float] = Field([], description="[low, high]: uniform; of a whole number both ends included")
    log: list[float] = Field([], description="[low, high]: uniform in the logarithm")

    @model_validator(mode="before")
    @classmethod
    def _one_form(cls, form: Any) -> Any:
        if not isinstance(form, Mapping) or len(form) != 1 or not form.keys() <= cls.model_fields.keys():
            raise ValueError(f"write it as {_FORMS}")
        return form

    @model_validator(mode="after")
    def _possible(self) -> SweptValues:
        (form,) = self.model_fields_set
        if form == "choices" and not self.choices:
            raise ValueError("choices: none are given")
        if form != "choices" and (len(self.extremes) != 2 or self.extremes[0] >= self.extremes[1]):
            raise ValueError(f"{form}: expected two numbers, the smaller one first, not {self.extremes}")
        if self.log and self.log[0] <= 0:
            raise ValueError(f"log: {self.log[0]:g} has no logarithm; begin above 0, or use range")
        return self

    @property
    def extremes(self) -> list[Any]:
        """Every choice, or both ends: if the setting accepts them, it accepts what is between."""
        return self.choices or self.range or self.log


class SweepSettings(Settings):
    """A sweep."""

    method: Literal["random", "tpe"] = Field("random", description="tpe: learns from earlier trials")
    trials: int = Field(20, ge=1, le=100_000, description="how many; a larger number later continues the sweep")
    seed: int = Field(0, ge=0, lt=2**31, description="of the values that are tried")
    seeds: int = Field(1, ge=1, le=1000, description="runs per trial, from the run's seed on; their mean counts")
    metric: Literal["mean_return", "mean_length", "agreement", "agreement_alone"] = Field(
        "mean_return", description="of the last evaluation; the last two need a teacher"
    )
    goal: Literal["maximize", "minimize"] = Field("maximize", description="what is better")
    parameters: dict[str, SweptValues] = Field(
        min_length=1, description=f"a setting or an argument of the recipe: {_FORMS}"
    )


def read_sweep(source: str | Path | Mapping[str, Any]) -> SweepSettings:
    """A sweep from its YAML file, or from the same keys in Python."""
    if isinstance(source, Mapping):
        return SweepSettings.read(source, "sweep")
    problem = file_problem(source)
    if problem is not None:
        raise InputError(problem)
    problems: list[str] = []
    try:
        data = read_document(Path(source), str(source), problems)
    except UnusableFileError as error:
        raise InputError(str(error)) from None
    if problems:
        raise InputError(*problems)
    return SweepSettings.read(data, str(source))


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial: the values tried, and the mean of the metric over its runs, or why there is none."""

    trial: int
    values: Json
    value: float | None
    runs: list[Json]  # folder, seed and the metric of each
    reason: str | None = None

    @property
    def words(self) -> str:
        """The values as they are typed after `velo train RECIPE`."""
        return typed(self.values)

    def as_json(self) -> Json:
        return {**asdict(self), "words": self.words}


def typed(values: Json) -> str:
    """Values as `key=value` words."""
    return " ".join(shlex.quote(f"{name}={written(value)}") for name, value in values.items())


@dataclass(frozen=True, slots=True)
class SweepResult:
    """How a sweep ended: the trials that have ended, in their order."""

    folder: Path
    sweep: SweepSettings
    trials: tuple[Trial, ...]

    @property
    def finished(self) -> bool:
        """Whether every trial has ended."""
        return len(self.trials) == self.sweep.trials

    @property
    def ranking(self) -> list[Trial]:
        """The trials with a value, best first."""
        sign = -1 if self.sweep.goal == "maximize" else 1
        return sorted((each for each in self.trials if each.value is not None), key=lambda t: sign * (t.value or 0.0))

    @property
    def best(self) -> Trial | None:
        """The first of them; None if every trial failed."""
        return next(iter(self.ranking), None)

    def as_json(self) -> Json:
        """As `velo train --sweep` prints it."""
        return {
            "folder": str(self.folder),
            "finished": self.finished,
            "metric": self.sweep.metric,
            "goal": self.sweep.goal,
            "trials": len(self.trials),
            "failed": sum(each.value is None for each in self.trials),
            "best": self.best and self.best.as_json(),
            "top": [each.as_json() for each in self.ranking[:_TOP]],
        }


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep that was checked: with a recipe, its arguments and settings by name, and the folder of its state."""

    sweep: SweepSettings
    recipe: Recipe
    values: Mapping[str, Any]
    base: ResolvedRun  # without the sweep
    folder: Path

    def proposed(self, number: int, earlier: Iterable[Trial]) -> Json:
        """The values of trial `number` after earlier ones, by an optuna study that is made of them."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        seed = int(hashlib.sha256(f"{self.sweep.seed}/{number}".encode()).hexdigest()[:8], 16)
        samplers = optuna.samplers
        sampler = samplers.TPESampler(seed=seed) if self.sweep.method == "tpe" else samplers.RandomSampler(seed=seed)
        study = optuna.create_study(sampler=sampler, direction=self.sweep.goal)
        kinds = self._distributions()
        for trial in earlier:
            swept = self.sweep.parameters
            points = {
                name: swept[name].choices.index(value) if swept[name].choices else value
                for name, value in trial.values.items()
            }
            state = optuna.trial.TrialState.FAIL if trial.value is None else optuna.trial.TrialState.COMPLETE
            study.add_trial(optuna.create_trial(params=points, distributions=kinds, value=trial.value, state=state))
        drawn = study.ask(kinds).params
        return {
            name: swept.choices[drawn[name]] if swept.choices else _rounded(drawn[name], swept)
            for name, swept in self.sweep.parameters.items()
        }

    def _distributions(self) -> dict[str, Any]:
        """For optuna. It knows choices by number, as they may be lists."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        fields = {leaf.name: leaf.field for leaf in leaves(self.base.settings)}
        fields |= self.recipe.arguments.model_fields
        kinds: dict[str, Any] = {}
        for name, swept in self.sweep.parameters.items():
            if swept.choices:
                kinds[name] = CategoricalDistribution(range(len(swept.choices)))
            elif fields[name].annotation in (int, int | None):
                kinds[name] = IntDistribution(*map(int, swept.extremes), log=bool(swept.log))
            else:
                kinds[name] = FloatDistribution(*swept.extremes, log=bool(swept.log))
        return kinds

    def runs(self, number: int, values: Mapping[str, Any]) -> Iterator[RunSettings]:
        """The settings of a trial's runs, one per seed."""
        settings = resolve(self.recipe, {**self.values, **values}).settings
        for index in range(self.sweep.seeds):
            name = f"trial_{number:03d}" + (f"_seed_{index}" if self.sweep.seeds > 1 else "")
            yield apply(settings, {"run": name, "seed": settings.seed + index, "output.train_dir": str(self.folder)})


def _rounded(value: float, swept: SweptValues) -> float:
    """A whole number as it is; another with six digits, which can be typed, within its range."""
    low, high = swept.extremes
    return value if isinstance(value, int) else min(max(float(f"{value:.6g}"), low), high)


def plan_sweep(sweep: SweepSettings, recipe: Recipe, values: Mapping[str, Any]) -> SweepPlan:
    """Check everything that can be checked without training. The folder is named by all that decides the results."""
    if find_spec("optuna") is None:
        raise InputError('a sweep needs the package "optuna" (pip install "velodrome[sweep]")')
    base = resolve(recipe, values)
    settings = base.settings
    problems = [line for name in sweep.parameters for line in _problems(sweep, recipe, values, name)]
    if not settings.evaluator.evaluate_local:
        problems.append("evaluator.evaluate_local=False: a sweep compares evaluations; leave it true")
    if sweep.metric.startswith("agreement") and not kind_of(settings.env.name).teacher:
        problems.append(f"metric: {settings.env.name} has no teacher to agree with; use mean_return")
    if problems:
        raise InputError(*dict.fromkeys(problems))
    own = sweep.model_dump(mode="json", exclude={"trials"})
    length, evaluator = settings.trainer.total_timesteps, settings.evaluator.model_dump(mode="json")
    key = json.dumps([recipe.function.__name__, digest(settings), length, evaluator, own], sort_keys=True)
    name = f"{settings.run}_sweep_{hashlib.sha256(key.encode()).hexdigest()[:_DIGITS]}"
    return SweepPlan(sweep, recipe, values, base, run_folder(settings).with_name(name))


def _problems(sweep: SweepSettings, recipe: Recipe, values: Mapping[str, Any], name: str) -> Iterator[str]:
    """What is wrong with a swept setting."""
    if name in values:
        yield f"{name}={values[name]}: it is swept as well; leave one out"
    elif name == "run" or (is_free(name) and name != "trainer.total_timesteps"):
        yield f"{name}: has no effect on what is learned, so there is nothing to sweep"
    else:
        for value in sweep.parameters[name].extremes:
            try:
                resolve(recipe, {**values, name: value})
            except InputError as error:  # what is wrong with a combination fails that trial alone
                yield from (line for line in error.problems if line.startswith(("unknown key", f"{name}: expected")))


def run_sweep(plan: SweepPlan, train: Train, say: Say, stop: Callable[[], bool]) -> SweepResult:
    """Run the trials that are missing, until `stop`. `train` trains one run."""
    _check_trainable(plan.base.settings)
    sweep = plan.sweep
    with held(plan.folder), closing(Appender(plan.folder / TRIALS)) as file:
        rows = map(orjson.loads, file.path.read_bytes().splitlines())
        trials = {row["trial"]: Trial(**{k: row[k] for k in Trial.__dataclass_fields__}) for row in rows}
        missing = [number for number in range(sweep.trials) if number not in trials]
        how = f"{'greedy' if plan.base.settings.evaluator.greedy else 'sampled'}"
        judged = f"judged by {sweep.metric} of the last evaluation ({how})"
        say(f"{plan.folder}: {counted(sweep.trials, 'trial')}, {len(missing)} to run, {judged}")
        for number in missing:
            earlier = [trials[each] for each in sorted(trials) if each < number]
            trial = None if stop() else _run_trial(plan, number, plan.proposed(number, earlier), train, say)
            if trial is None:
                break
            file.append(orjson.dumps(trial.as_json(), option=orjson.OPT_APPEND_NEWLINE))
            file.sync()
            trials[number] = trial
            say(f"trial {number} failed: {trial.reason}" if trial.reason else f"trial {number}: {trial.value:g}")
    return SweepResult(plan.folder, sweep, tuple(trials[each] for each in sorted(trials) if each < sweep.trials))


def _run_trial(plan: SweepPlan, number: int, values: Json, train: Train, say: Say) -> Trial | None:
    """Train with these values, once per seed. None if that was stopped."""
    say(f"trial {number} of {plan.sweep.trials}: {typed(values)}")
    runs: list[Json] = []
    try:
        for settings in plan.runs(number, values):
            result = train(settings)
            if not result.finished:
                return None
            metric = (result.evaluation or {}).get(plan.sweep.metric)
            if metric is None or not isfinite(metric):
                raise TrainError(f"{plan.sweep.metric} of the evaluation is {metric}")
            runs.append({"folder": result.folder.name, "seed": settings.seed, "value": metric})
    except (InputError, TrainError) as error:
        return Trial(number, values, None, runs, str(error))
    return Trial(number, values, sum(run["value"] for run in runs) / len(runs), runs)


def _check_trainable(settings: RunSettings) -> None:
    """Raise what would make every trial fail, such as an absent package or an unknown environment."""
    refuse_without_torch("a sweep")
    from velodrome.training.run.session import make_session
    from velodrome.training.run.sinks import chosen_sinks

    chosen_sinks(settings.output)
    with TemporaryDirectory(prefix="velodrome-") as folder:
        quiet = settings.model_copy(update={"output": OutputSettings()})
        make_session(quiet, Path(folder), lambda _: None).close()
