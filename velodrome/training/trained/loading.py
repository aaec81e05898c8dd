"""Find the weights of a run by name: `best`, `last`, the end of a phase, or a step that is kept.

What belongs to a run is what its newest checkpoint says, so a file that was written just before a kill is not counted.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError, blame
from velodrome.training.envs.interface import ActionSpace, Spec
from velodrome.training.network.policy import Policy
from velodrome.training.random_streams import stream
from velodrome.training.run import checkpoint
from velodrome.training.run.train_folder import METRICS
from velodrome.training.settings import RunSettings
from velodrome.training.trained.trained_policy import TrainedPolicy

Json = dict[str, Any]

LAST, TAUGHT = "last", "taught"
_PHASE = "phase_"
_SHOWN = 5  # runs in a message


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """A file of weights, the names that select it, and its evaluation if it was evaluated."""

    path: Path
    step: int
    names: tuple[str, ...]
    evaluation: Json | None


def load_trained(path: str | Path, which: str | int = LAST) -> TrainedPolicy:
    """The policy of a run's folder, of a run's name, or of one file."""
    place = find_run(path)
    if place.is_dir():
        place = _chosen(place, str(which)).path
    elif place.suffix == ".onnx":
        raise InputError(f"{place}: an exported policy; onnxruntime runs it")
    elif which != LAST:
        raise InputError(f"which={which}: {place} is one file; give the folder of the run, or leave `which` out")
    return read_policy(place)


def find_run(path: str | Path) -> Path:
    """The folder or file of that name, or the only folder of a run of that name."""
    with blame(InputError, f"{path}: no such folder"):  # a home folder that does not exist
        typed = Path(path).expanduser()
    if typed.is_file() or (typed.is_dir() and checkpoint.checkpoints(typed)):
        return typed
    folders = typed.iterdir() if typed.is_dir() else typed.parent.glob(f"{glob.escape(typed.name)}_*")
    runs = sorted(each for each in folders if each.is_dir() and checkpoint.checkpoints(each))
    named = [each for each in runs if each.name.rpartition("_")[0] == typed.name]
    if len(named) == 1:
        return named[0]
    if runs:
        raise InputError(f"{path}: which run? {', '.join(map(str, runs[:_SHOWN]))}{' …' if runs[_SHOWN:] else ''}")
    if typed.is_dir():
        raise InputError(f"{path}: has no checkpoint; the first is written after trainer.checkpoint_interval epochs")
    raise InputError(f"{path}: no such folder, and no run of that name")


def kept_weights(folder: Path) -> list[KeptWeights]:
    """Everything that can be loaded from the folder of a run, by step."""
    state = checkpoint.latest(folder, lambda _: None)
    if state is None:
        raise InputError(f"{folder}: has no checkpoint")
    files = checkpoint.checkpoints(folder)
    names: dict[Path, list[str]] = {path: [] for path in files}
    for kind, one in state["kept"].items():
        names[folder / checkpoint.name_of(one["step"], kind)] = [kind.removeprefix(_PHASE)]
    names[files[-1]] += [LAST]
    if state["step"] >= json.loads(state["settings"])["trainer"]["total_timesteps"]:
        names[files[-1]] += [state["phase"]]
    evaluations = dict(_evaluations(folder / METRICS))
    evaluations |= {one["step"]: one["evaluation"] for one in state["kept"].values() if "evaluation" in one}
    steps = {path: int(path.stem.rpartition("_")[2]) for path in names}
    return [
        KeptWeights(path, steps[path], tuple(names[path]), evaluations.get(steps[path]))
        for path in sorted(names, key=lambda path: (steps[path], path))
    ]


def describe_run(path: str | Path) -> Json:
    """What a run is and what is kept of it, as JSON."""
    folder = find_run(path)
    if folder.is_file():
        raise InputError(f"{path}: is one file; give the folder of the run")
    policy = load_trained(folder)
    how = policy.settings.policy
    kept = [{**asdict(one), "path": str(one.path)} for one in kept_weights(folder)]
    network = f"{policy.spec.layout}, {how.core}, {how.hidden} wide"
    return {"run": str(folder), "env": policy.spec.name, "network": network, "step": policy.step, "kept": kept}


def _chosen(folder: Path, which: str) -> KeptWeights:
    every = kept_weights(folder)
    name = "supervised" if which == TAUGHT else which
    sampled = not any("best" in one.names for one in every)
    name = "best_sampled" if name == "best" and sampled else name
    named = [one for one in every if name in (*one.names, str(one.step))]
    if named:
        return named[0]
    names = [name for one in every for name in one.names]
    steps = sorted({f"{one.step}" for one in every}, key=int)
    why = " (the run was not evaluated)" if which == "best" else ""
    raise InputError(f"{folder}: has no which={which}{why}; there are {', '.join([*names, *steps])}")


def _evaluations(path: Path) -> Iterator[tuple[int, Json]]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):  # a torn line, or one of an epoch
            row = orjson.loads(line) if b'"evaluation"' in line else {}
            yield row["step"], row["evaluation"]


def read_policy(path: Path) -> TrainedPolicy:
    """The policy in a file. Nothing of its environment has to be installed."""
    state = checkpoint.read(path)
    try:
        settings = _read_settings(json.loads(state["settings"]))
        spec = _read_spec(json.loads(state["spec"]))
        network = Policy(settings.policy, spec, stream(0, "weights", 0))
        network.load_state_dict(state["policy"])
        return TrainedPolicy(network.eval(), settings, spec, int(state["step"]), path)
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: the weights are of another network ({type(error).__name__})") from error


def _read_settings(data: Json) -> RunSettings:
    """The settings of a run without what a recipe's own classes have added."""
    groups = {name: value for name, value in data.items() if name not in ("losses", "curriculum")}
    defaults = RunSettings()
    for name, value in groups.items():
        if isinstance(value, dict):
            known = type(getattr(defaults, name)).model_fields
            groups[name] = {key: each for key, each in value.items() if key in known}
    return RunSettings.model_validate_json(orjson.dumps(groups))


def _read_spec(data: Json) -> Spec:
    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    known = Spec.__dataclass_fields__.keys() - {"actions"}  # a file of an older version may have more
    fields = {name: tuples(value) for name, value in data.items() if name in known}
    return Spec(actions=ActionSpace(**{name: tuples(value) for name, value in data["actions"].items()}), **fields)
