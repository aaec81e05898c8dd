"""Run the trials of a sweep, one after the other, each as ordinary runs in the sweep's folder.

A trial is written down when it has ended, so a kill at any moment loses none and repeats none: the same command
continues with the first trial that is missing, from the last checkpoint of its run. A trial that fails is recorded
with its reason and stops no other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import orjson

from velodrome.errors import InputError, TrainError
from velodrome.records.appender import Appender
from velodrome.timing.report import counted
from velodrome.training.assignments import apply
from velodrome.training.recipes import Recipe, resolve
from velodrome.training.run.train_folder import digest, held, run_folder
from velodrome.training.settings import OutputSettings, RunSettings
from velodrome.training.start import refuse_without_torch
from velodrome.training.sweep.samplers import check_method, proposed
from velodrome.training.sweep.search_space import SweepSettings, check_sweep, whole_numbers
from velodrome.training.sweep.trials import TRIALS, Json, Trial, best_first, read_trials, typed

if TYPE_CHECKING:
    from velodrome.training.loop import TrainingResult

Say = Callable[[str], None]
Train = Callable[[RunSettings], "TrainingResult"]

_TOP = 5
_DIGITS = 8


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep that was checked: with a recipe, its arguments and settings by name, and the folder of its state."""

    sweep: SweepSettings
    recipe: Recipe
    values: Mapping[str, Any]
    base: RunSettings  # without the sweep
    whole: frozenset[str]  # settings that take only whole numbers
    folder: Path

    def proposed(self, number: int, trials: Mapping[int, Trial]) -> Json:
        """The values of a trial, after those with smaller numbers."""
        earlier = [trials[each] for each in sorted(trials) if each < number]
        return proposed(self.sweep, self.whole, number, earlier)

    def runs(self, number: int, values: Mapping[str, Any]) -> Iterator[RunSettings]:
        """The settings of a trial's runs, one per seed."""
        settings = resolve(self.recipe, {**self.values, **values}).settings
        for index in range(self.sweep.seeds):
            name = f"trial_{number:03d}" + (f"_seed_{index}" if self.sweep.seeds > 1 else "")
            yield apply(settings, {"run": name, "seed": settings.seed + index, "output.train_dir": str(self.folder)})


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
        return best_first(self.trials, self.sweep.goal)

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


def plan_sweep(sweep: SweepSettings, recipe: Recipe, values: Mapping[str, Any]) -> SweepPlan:
    """Check everything that can be checked without training. The folder is named by all that decides the results."""
    check_method(sweep)
    base = check_sweep(sweep, recipe, values)
    settings = base.settings
    own = sweep.model_dump(mode="json", exclude={"trials"})
    length, evaluator = settings.trainer.total_timesteps, settings.evaluator.model_dump(mode="json")
    key = json.dumps([recipe.function.__name__, digest(settings), length, evaluator, own], sort_keys=True)
    name = f"{settings.run}_sweep_{hashlib.sha256(key.encode()).hexdigest()[:_DIGITS]}"
    return SweepPlan(sweep, recipe, values, settings, whole_numbers(sweep, base), run_folder(settings).with_name(name))


def run_sweep(plan: SweepPlan, train: Train, say: Say, stop: Callable[[], bool]) -> SweepResult:
    """Run the trials that are missing, until `stop`. `train` trains one run."""
    _check_trainable(plan.base)
    numbers = range(plan.sweep.trials)
    with held(plan.folder), closing(Appender(plan.folder / TRIALS)) as file:
        trials = read_trials(file)
        missing = [number for number in numbers if number not in trials]
        for note in (*file.notes, _opening(plan, len(missing))):
            say(note)
        for number in missing:
            trial = None if stop() else run_trial(plan, number, plan.proposed(number, trials), train, say)
            if trial is None:
                break
            file.append(orjson.dumps(trial.as_json(), option=orjson.OPT_APPEND_NEWLINE))
            file.sync()
            trials[number] = trial
            say(_ending(plan, trial, trials))
    return SweepResult(plan.folder, plan.sweep, tuple(trials[each] for each in numbers if each in trials))


def run_trial(plan: SweepPlan, number: int, values: Json, train: Train, say: Say) -> Trial | None:
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


def _opening(plan: SweepPlan, missing: int) -> str:
    done = plan.sweep.trials - missing
    before = f", {done} of them done before" if done else ""
    evaluator = plan.base.evaluator
    how = f"{'greedy' if evaluator.greedy else 'sampled'}, {counted(evaluator.episodes, 'episode')}"
    judged = f"judged by {plan.sweep.metric} of the last evaluation ({how})"
    return f"{plan.folder}: {counted(plan.sweep.trials, 'trial')} by {plan.sweep.method} search{before}, {judged}"


def _ending(plan: SweepPlan, trial: Trial, trials: Mapping[int, Trial]) -> str:
    if trial.value is None:
        return f"trial {trial.trial} failed: {trial.reason}"
    best = best_first(trials.values(), plan.sweep.goal)[0]
    return f"trial {trial.trial}: {plan.sweep.metric} {trial.value:g}; best so far {best.value:g}, trial {best.trial}"
