"""The page of a training run, live while it trains; and the curves of several runs in the same charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from velodrome.timing.figures import counted
from velodrome.viewer.pages.links import Links
from velodrome.viewer.parts.render import count, number
from velodrome.viewer.runs.known_runs import KnownRuns
from velodrome.viewer.runs.training_curves import PHASES, is_number, last_step, shares, training_charts
from velodrome.viewer.runs.training_run import TrainingData, TrainingRun

Json = dict[str, Any]

_MOST_SETTINGS = 300
_LETTERS = "ABCDEFGHIJKL"


def training_page(run: TrainingRun, runs: KnownRuns) -> Json:
    """The values of the template."""
    data = run.read()
    live = runs.summary(runs.named(run.slug)).live
    return {
        "name": run.name,
        "path": str(run.path),
        "live": live,
        "status": _status(data, live),
        "figures": list(_figures(data)),
        "pictures": list(training_charts([data], [run.name])),
        "time": shares(data),
        "thinned": _thinned(data),
        "episodes": [_episodes(run, file.name, file.size, file.at, runs) for file in data.episodes],
        "checkpoints": data.checkpoints[::-1],
        "traces": data.traces,
        "settings": list(flat_settings(data.settings))[:_MOST_SETTINGS],
        "compare": Links(run.slug).compare_with() if len(_training(runs)) > 1 else None,
        "listed": len(runs.all()) > 1,
    }


def curves_page(runs: Sequence[TrainingRun]) -> Json:
    """Several runs: the curves of all, and the settings in which they differ."""
    data = [run.read() for run in runs]
    settings = [dict(flat_settings(each.settings)) for each in data]
    names = dict.fromkeys(name for each in settings for name in each)
    differ = [(name, [each.get(name, "–") for each in settings]) for name in names]
    slugs = [run.slug for run in runs]
    return {
        "runs": [
            {"letter": letter, "name": run.name, "href": Links(run.slug).training(), "style": at % 8}
            for at, (letter, run) in enumerate(zip(_LETTERS, runs, strict=False))
        ],
        "pictures": list(training_charts(data, list(_LETTERS[: len(runs)]))),
        "thinned": next(filter(None, map(_thinned, data)), ""),
        "differ": [(name, values) for name, values in differ if len(set(values)) > 1][:_MOST_SETTINGS],
        "choose": Links("").runs(run=slugs),
    }


def _training(runs: KnownRuns) -> list[Any]:
    return [run for run in runs.all() if run.found.kind == "training"]


def _status(data: TrainingData, live: bool) -> str:
    if not data.epochs:
        return "training begins" if live else "no epoch has ended"
    name = str(data.epochs[-1]["phase"])[:40]
    phase = PHASES.get(name, name)
    return f"live: training, {phase}" if live else f"at rest, after {phase}"


def _figures(data: TrainingData) -> Iterator[tuple[str, str]]:
    """The newest numbers. Evaluations are labelled greedy or sampled."""
    last = data.epochs[-1] if data.epochs else {}
    trainer = data.settings.get("trainer")
    total = trainer.get("total_timesteps") if isinstance(trainer, dict) else None
    yield f"agent steps{f' of {count(total)}' if is_number(total) else ''}", count(last_step([data]))
    for greedy, label in ((True, "greedy"), (False, "sampled")):
        lines = [line for line in data.evaluations if bool(line["evaluation"].get("greedy")) is greedy]
        newest = lines[-1]["evaluation"] if lines else {}
        if is_number(newest.get("mean_return")):
            episodes = newest.get("episodes")
            yield f"return, evaluated {label}{_episodes_text(episodes)}", number(newest["mean_return"])
    for name, label in (
        ("rollout_return", "return in rollouts, sampled"),
        ("loss", "loss"),
        ("sps", "steps per second"),
    ):
        line = next((line for line in reversed(data.epochs) if is_number(line.get(name))), None)
        if line is not None:
            episodes_text = _episodes_text(line.get("episodes")) if name == "rollout_return" else ""
            yield f"{label}{episodes_text}", count(line[name]) if name == "sps" else number(line[name])
    if last:
        yield "epochs", count(last.get("epoch"))


def _episodes_text(episodes: Any) -> str:
    return f", {counted(int(episodes), 'episode')}" if is_number(episodes) else ""


def _thinned(data: TrainingData) -> str:
    """A note if epochs are left out, or ""."""
    return f"one epoch of {data.every} is shown" if data.every > 1 else ""


def _episodes(run: TrainingRun, name: str, size: int, at: float, runs: KnownRuns) -> Json:
    run_of_file = runs.at(run.path / name)
    href = Links(run_of_file.slug).rollouts() if run_of_file else None
    return {"name": name, "size": size, "at": at, "href": href, "sampled": "sampled" in name}


def flat_settings(settings: Json, above: str = "") -> Iterator[tuple[str, str]]:
    """Every setting by its full name, as in a command."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from flat_settings(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"[:200], str(value)[:200]
