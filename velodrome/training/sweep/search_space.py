"""What a sweep tries: settings, their values, how often, and which number of the evaluation counts.

Written as a small YAML file. Every mistake in it is reported before the first trial: unknown keys, and ends of ranges
and choices that the setting does not accept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from velodrome.errors import InputError
from velodrome.settings.documents import Refused, read_document
from velodrome.settings.files import file_problem
from velodrome.settings.model import Settings
from velodrome.settings.names import hint
from velodrome.training.envs.env_names import kind_of
from velodrome.training.recipes import Recipe, ResolvedRun, resolve
from velodrome.training.run.train_folder import is_free
from velodrome.training.settings import leaves

METRICS = ("mean_return", "mean_length", "agreement", "agreement_alone")  # of an evaluation; the last two by a teacher
_FORMS = "{choices: [a, b]}, {range: [low, high]} or {log: [low, high]}"


class SweptValues(Settings):
    """The values of one setting, in one of three forms."""

    choices: list[Any] | None = Field(None, description="one of these")
    range: list[float] | None = Field(None, description="[low, high]: uniform; of a whole number both ends included")
    log: list[float] | None = Field(None, description="[low, high]: uniform in the logarithm")

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
        if form != "choices" and (len(self.ends) != 2 or self.ends[0] >= self.ends[1]):
            raise ValueError(f"{form}: expected two numbers, the smaller one first, not {self.ends}")
        if self.log and self.log[0] <= 0:
            raise ValueError(f"log: {self.log[0]:g} has no logarithm; begin above 0, or use range")
        return self

    @property
    def ends(self) -> list[float]:
        """Of a range."""
        return self.range or self.log or []

    @property
    def extremes(self) -> list[Any]:
        """Every choice, or both ends: if the setting accepts them, it accepts what is between."""
        return self.choices or self.ends


class SweepSettings(Settings):
    """A sweep."""

    method: Literal["random", "tpe"] = Field("random", description="tpe: learns from earlier trials (extra sweep)")
    trials: int = Field(20, ge=1, le=100_000, description="how many; a larger number later continues the sweep")
    seed: int = Field(0, ge=0, lt=2**31, description="of the values that are tried")
    seeds: int = Field(1, ge=1, le=1000, description="runs per trial, from the run's seed on; their mean counts")
    metric: str = Field("mean_return", description=f"of the last evaluation: {', '.join(METRICS)}")
    goal: Literal["maximize", "minimize"] = Field("maximize", description="what is better")
    parameters: dict[str, SweptValues] = Field(description=f"a setting or an argument of the recipe: {_FORMS}")

    @model_validator(mode="after")
    def _something_to_try(self) -> SweepSettings:
        if not self.parameters:
            raise ValueError("parameters: none are given; name a setting, as in ppo.update_epochs: {choices: [2, 4]}")
        if self.metric not in METRICS:
            near = hint(self.metric, METRICS) or f"; it is one of {', '.join(METRICS)}"
            raise ValueError(f'metric: an evaluation has no "{self.metric}"{near}')
        return self


def read_sweep(source: str | Path | Mapping[str, Any]) -> SweepSettings:
    """A sweep from its file, or from the same keys in Python."""
    if isinstance(source, Mapping):
        return SweepSettings.read(source, "sweep")
    problem = file_problem(source)
    if problem is not None:
        raise InputError(problem)
    problems: list[str] = []
    try:
        data = read_document(Path(source), str(source), problems)
    except Refused as refused:
        raise InputError(str(refused)) from None
    if problems:
        raise InputError(*problems)
    return SweepSettings.read(data, str(source))


def check_sweep(sweep: SweepSettings, recipe: Recipe, values: Mapping[str, Any]) -> ResolvedRun:
    """The run without the sweep. Raises `InputError` with everything that this recipe or its settings refuse."""
    base = resolve(recipe, values)
    problems = [line for name in sweep.parameters for line in _refused(sweep, recipe, values, name)]
    if not base.settings.evaluator.evaluate_local:
        problems.append("evaluator.evaluate_local=False: a sweep compares evaluations; leave it true")
    if sweep.metric.startswith("agreement") and not kind_of(base.settings.env.name).teacher:
        problems.append(f"metric: {base.settings.env.name} has no teacher to agree with; use mean_return")
    if problems:
        raise InputError(*sorted(dict.fromkeys(problems), key=lambda line: not line.startswith("unknown key")))
    return base


def whole_numbers(sweep: SweepSettings, run: ResolvedRun) -> frozenset[str]:
    """The swept settings that take only whole numbers."""
    kinds = {leaf.name: leaf.field.annotation for leaf in leaves(run.settings)}
    kinds |= {name: field.annotation for name, field in run.recipe.arguments.model_fields.items()}
    return frozenset(name for name in sweep.parameters if kinds.get(name) in (int, int | None))


def _refused(sweep: SweepSettings, recipe: Recipe, values: Mapping[str, Any], name: str) -> Iterator[str]:
    if name in values:
        yield f"{name}={values[name]}: it is swept as well; leave one out"
    elif name == "run" or (is_free(name) and name != "trainer.total_timesteps"):
        yield f"{name}: has no effect on what is learned, so there is nothing to sweep"
    else:
        for value in sweep.parameters[name].extremes:
            yield from _problems(sweep, recipe, {**values, name: value}, name)


def _problems(sweep: SweepSettings, recipe: Recipe, values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """What is wrong with a value by itself; nothing, if it goes with a value of another swept setting."""
    try:
        resolve(recipe, values)
    except InputError as error:
        for other, swept in sweep.parameters.items():
            for value in swept.extremes if other != name else ():
                with suppress(InputError):
                    resolve(recipe, {**values, other: value})
                    return ()
        return error.problems
    return ()
