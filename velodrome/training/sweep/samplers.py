"""The values of a trial, made of the sweep's seed, the trial's number and the results of the trials before it.

Nothing else is remembered: a sweep that was interrupted proposes what it would have proposed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from hashlib import blake2b
from importlib.util import find_spec
from typing import Any

from velodrome.errors import InputError
from velodrome.training.sweep.search_space import SweepSettings, SweptValues
from velodrome.training.sweep.trials import Trial

Values = dict[str, Any]


def proposed(sweep: SweepSettings, whole: frozenset[str], number: int, earlier: Sequence[Trial]) -> Values:
    """The values of trial `number`, after the `earlier` ones. `whole` are the settings that take whole numbers."""
    if sweep.method == "tpe":
        return _by_tpe(sweep, whole, number, earlier)
    names = sweep.parameters
    return {name: _drawn(names[name], random.Random(f"{sweep.seed}/{number}/{name}"), name in whole) for name in names}


def check_method(sweep: SweepSettings) -> None:
    """An `InputError` if the package of the method is absent."""
    if sweep.method == "tpe" and find_spec("optuna") is None:
        needed = 'needs the package "optuna" (pip install "velodrome[sweep]"); method: random needs none'
        raise InputError(f"method: tpe {needed}")


def _drawn(swept: SweptValues, stream: random.Random, whole: bool) -> Any:
    if swept.choices:
        return stream.choice(swept.choices)
    low, high = swept.ends
    if whole and swept.range:
        return stream.randint(int(low), int(high))
    if swept.log:
        return _rounded(math.exp(stream.uniform(math.log(low), math.log(high))), swept, whole)
    return _rounded(stream.uniform(low, high), swept, whole)


def _rounded(value: float, swept: SweptValues, whole: bool) -> float:
    """A whole number, or six digits, which can be typed; within the range."""
    low, high = swept.ends
    return round(value) if whole else min(max(float(f"{value:.6g}"), low), high)


def _by_tpe(sweep: SweepSettings, whole: frozenset[str], number: int, earlier: Sequence[Trial]) -> Values:
    """Optuna's TPE, from a study that is built of the earlier trials each time. Choices are known to it by number."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    kinds = {name: _distribution(swept, name in whole) for name, swept in sweep.parameters.items()}
    seed = int.from_bytes(blake2b(f"{sweep.seed}/{number}".encode(), digest_size=4).digest(), "big")
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed), direction=sweep.goal)
    for trial in earlier:
        points = {name: _point(sweep.parameters[name], value) for name, value in trial.values.items()}
        state = optuna.trial.TrialState.FAIL if trial.value is None else optuna.trial.TrialState.COMPLETE
        study.add_trial(optuna.create_trial(params=points, distributions=kinds, value=trial.value, state=state))
    asked = study.ask(kinds).params
    return {
        name: swept.choices[asked[name]] if swept.choices else _rounded(asked[name], swept, name in whole)
        for name, swept in sweep.parameters.items()
    }


def _distribution(swept: SweptValues, whole: bool) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if swept.choices:
        return CategoricalDistribution(range(len(swept.choices)))
    low, high = swept.ends
    log = swept.log is not None
    return IntDistribution(int(low), int(high), log=log) if whole else FloatDistribution(low, high, log=log)


def _point(swept: SweptValues, value: Any) -> Any:
    return swept.choices.index(value) if swept.choices else value
