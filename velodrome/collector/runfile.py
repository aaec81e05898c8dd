"""`rollouts.run.json`: how the rollouts beside it were made.

Its recipe is everything that decides the content of a rollout: agents, models, environments, a digest of their code,
overrides, without secrets. A resumed run with another recipe would mix two kinds of rollouts in one file, and is
refused. The file also has one entry per run, with its counts.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError
from velodrome.records.outfile import write_whole
from velodrome.records.rollout import beside
from velodrome.settings import Instance, mask
from velodrome.settings.names import FOREIGN

Json = dict[str, Any]

# Settings that may change between two runs: they do not affect the content of rollouts.
_OPERATIONAL = frozenset(
    (
        *FOREIGN,
        *("base_url", "api_key", "openai_base_url", "openai_api_key", "headers", "verbose"),
        *("session_header", "sticky_margin", "health_check_s"),
        *(
            "timeout_s",
            "total_timeout_s",
            "rate_limit_timeout_s",
            "max_retries",
            "backoff_s",
            "max_concurrent",
            "judge_max_concurrent",
        ),
        *("verify_timeout_s", "tool_timeout_s", "session_timeout_s", "latency_s", "jitter_s", "faults"),
        *("parallel", "n_threads", "threads", "verify_processes", "library_wall_timeout_s"),
        *("executor", "worker_processes", "worker_memory_mb", "worker_calls"),
    )
)


def instance_recipes(instances: Mapping[str, Instance], sources: Mapping[str, str]) -> Json:
    """The recipe of each instance. `sources` has the digests of their code."""
    return {
        name: {
            "kind": instance.kind,
            "implementation": instance.implementation,
            "settings": settings_recipe(instance.settings),
            **({"source": sources[name]} if name in sources else {}),
        }
        for name, instance in sorted(instances.items())
    }


def settings_recipe(settings: Mapping[str, Any]) -> Json:
    """The settings that decide the content of rollouts, as JSON and without secrets."""
    recipe = {key: value for key, value in settings.items() if key not in _OPERATIONAL}
    masked: Json = mask(orjson.loads(orjson.dumps(recipe, default=_stable_text)))
    return masked


def _stable_text(value: Any) -> str:
    """A value as text that is the same in every process: without memory addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def make_recipe(instances: Json, params: Json, *, deferred: bool, seed: int | None = None) -> Json:
    """The recipe of a run: everything that decides the content of its rollouts."""
    recipe: Json = mask({"instances": instances, "responses_create_params": params, "defer_verification": deferred})
    return recipe if seed is None else {**recipe, "seed": seed}


def differences(before: Any, now: Any, where: str = "") -> list[str]:
    """Every place where two recipes differ, one line each. Code without a digest is not compared."""
    if isinstance(before, dict) and isinstance(now, dict):
        result = []
        for name in sorted({*before, *now}):
            below = f"{where}.{name}" if where else str(name)
            result += differences(before.get(name), now.get(name), below)
        return result
    source = re.fullmatch(r"instances\.(.+)\.source", where)
    if before == now or (source and None in (before, now)):
        return []
    if source:
        return [f"{source[1]}: its code changed: source was {before}, now {now}"]
    return [f"{where}: was {_short(before)}, now {_short(now)}"]


def _shared_instances(before: Json, now: Json) -> dict[str, tuple[Json, Json]]:
    """The old and the new recipe of each instance that two recipes share."""
    old, new = before.get("instances"), now.get("instances")
    if not isinstance(old, dict) or not isinstance(new, dict):
        return {}
    return {name: (old[name], new[name]) for name in new if isinstance(old.get(name), dict)}


def _short(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 80 else text[:77] + "…"


class RunFile:
    """The run file of one output. `problems` compares a new recipe with the recorded one."""

    def __init__(self, rollouts: Path | None) -> None:
        self.path = None if rollouts is None else beside(rollouts, "run.json")
        self._data: Json = {}
        if self.path is not None and self.path.exists():
            try:
                self._data = orjson.loads(self.path.read_bytes())
            except (OSError, orjson.JSONDecodeError) as error:
                raise InputError(
                    f"{self.path}: cannot be read ({error}); move it away to go on without comparing"
                ) from error
            if not isinstance(self._data, dict) or not isinstance(self._data.get("runs", []), list):
                raise InputError(f"{self.path}: not a run file; move it away, or give another output")

    def problems(self, recipe: Json) -> list[str]:
        """How this recipe differs from the recipe of the existing rollouts, one line per difference."""
        before = self._data.get("recipe")
        if not isinstance(before, dict):
            return []
        return differences(before, orjson.loads(orjson.dumps(recipe)))

    def begin(self, recipe: Json, inputs: Json, config: Json) -> Json:
        """Record the start of a run. The caller may add to the returned entry until `save`."""
        entry: Json = {"started_at": round(time.time(), 3), **inputs}
        for old, new in _shared_instances(self._data.get("recipe") or {}, recipe).values():
            if "source" in old:
                new.setdefault("source", old["source"])  # keep the digest if a server does not report one
        self._data = {
            "recipe": recipe,
            "config": config,
            "versions": {"velodrome": version("velodrome"), "python": platform.python_version()},
            "runs": [*self._data.get("runs", []), entry],
        }
        self.save()
        return entry

    def add(self, other: RunFile, name: str) -> list[str]:
        """Add the runs of another file under the name of its output. Returns how its recipe differs from this one."""
        recipe, runs = other._data.get("recipe"), other._data.get("runs", [])
        problems = self.problems(recipe) if isinstance(recipe, dict) else []
        new_runs = [{"output": name, **entry} for entry in runs if isinstance(entry, dict)]
        all_runs = sorted([*self._data.get("runs", []), *new_runs], key=lambda entry: entry.get("started_at") or 0)
        self._data = {**other._data, **self._data, "runs": all_runs}
        return problems

    def save(self) -> None:
        """Write the file, whole or not at all."""
        if self.path is not None:
            write_json(self.path, self._data)


def refuse_mixing(problems: list[str], output: Path | None) -> None:
    """Raise an `InputError` if there are differences between the recipes of two runs."""
    if problems:
        raise InputError(
            f"{output}: its rollouts were made with other settings or other code; set allow_mixed to add to "
            "them anyway, or choose another output",
            *(f"  {problem}" for problem in problems[:20]),
        )


def write_json(path: Path, data: Json) -> None:
    """One JSON object as a file, whole or not at all."""
    write_whole(path, orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
