"""One rollout again: the same task, agent and sampling as a row of a file says, into a file of its own.

What ran is in `rollouts.run.json`, with secrets masked: those must come from elsewhere. The seeds of model calls are
made from the key of the old rollout; the new one has a key of its own, so that each rerun of a task is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from velodrome.collector.attempt import Attempt
from velodrome.collector.plan import Job
from velodrome.errors import InputError
from velodrome.index import Entry, Index, Query
from velodrome.records.appender import Appender
from velodrome.records.jsonl import loads, read_lines
from velodrome.records.rollout import beside, encode, key_in, split_key, task_of
from velodrome.records.task import digest, parse_task
from velodrome.settings.masking import MASK
from velodrome.settings.names import KINDS

Json = dict[str, Any]

_MOST_KEYS = 50_000  # of a file, compared with a key that is not in it
_MOST_NAMED = 3


@dataclass(frozen=True)
class OldRollout:
    """A rollout or a failed attempt of a file, and what it takes to run it again."""

    file: Path
    row: Json
    failed: bool
    task: Json
    blocks: Json  # of the configuration that made it
    settings: Json  # the rest of that configuration
    recipe: Json

    @property
    def meta(self) -> Json:
        meta: Json = self.row if self.failed else self.row["meta"]
        return meta

    @property
    def served(self) -> bool:
        """Whether servers made it: their spans are in its timing."""
        return "@" in _span_names(self.meta.get("timing", {}).get("tree"))

    def job(self, params: Mapping[str, Any]) -> Job:
        """The job that made it, with other sampling where `params` says so."""
        meta, task = self.meta, self.task
        if params:
            task = {**task, "responses_create_params": task["responses_create_params"] | params}
        places = (meta.get("task_index") or 0, meta.get("rollout_index") or 0)
        seed = self.recipe.get("seed")
        return Job(meta["key"], *places, meta["agent"], task, digest=meta.get("task_digest"), seed=seed)


def read_old(file: Path, key: str) -> OldRollout:
    """The rollout with a key, or its last failed attempt. What cannot be run again is an `InputError`."""
    with closing(Index(file)) as index:
        index.refresh(search=False)
        number = index.find(key)
        if number is None:
            raise InputError(f"{file}: no rollout with the key {key!r:.100}{_near(index, key)}")
        entry, row = index.entry(number), index.row(number)
        record = _record(file)
        failed = entry.state == "failed"
        task = _task_of_failure(file, index, entry, row, record) if failed else task_of(row)
    blocks = {name: block for name, block in record["config"].items() if _is_block(block)}
    if not blocks:
        raise InputError(
            f"{file}: it was made from Python, with a live agent; call velodrome.rollout(task, agent) there"
        )
    settings = {name: value for name, value in record["config"].items() if name not in blocks}
    recipe = record.get("recipe")
    return OldRollout(file, row, failed, task, blocks, settings, recipe if isinstance(recipe, dict) else {})


def _near(index: Index, key: str) -> str:
    keys = [entry.key for entry in islice(index.select(Query()), _MOST_KEYS)]
    near = [each for each in keys if each.rpartition("/")[0] == key] or get_close_matches(key, keys, _MOST_NAMED)
    return f"; the nearest are {', '.join(map(repr, near[:_MOST_NAMED]))}" if near else "; velo view lists its rollouts"


def _record(file: Path) -> Json:
    """What `rollouts.run.json` says."""
    path = beside(file, "run.json")
    try:
        record = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file, so what made {file.name} is not known; run it with velo collect"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    if not isinstance(record, dict) or not isinstance(record.get("config"), dict):
        raise InputError(f"{path}: not a run file")
    return record


def _is_block(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in KINDS


def _task_of_failure(file: Path, index: Index, entry: Entry, row: Json, record: Json) -> Json:
    """The task of a failed attempt, whose line has only the request: from another rollout of it, or the input."""
    family = index.repeats(entry.task)
    for each in family.entries if family else ():
        if each.state != "failed":
            return task_of(index.row(each.number))
    runs = record.get("runs")
    inputs = [run.get("input") for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []
    for path in {Path(each) for each in inputs if isinstance(each, str)}:
        for _, line in read_lines(path, lost=lambda *_: None) if path.is_file() else ():
            try:
                task = parse_task(line)
            except ValueError:
                continue
            if digest(task) == row.get("task_digest"):
                params = record.get("recipe", {}).get("responses_create_params", {})
                return {**task, "responses_create_params": task["responses_create_params"] | params}
    where = f"; {inputs[-1]} does not have it any more" if inputs and inputs[-1] else ""
    raise InputError(
        f"{file}: {entry.key!r} failed, and its whole task is in no other rollout{where}; use velo collect"
    )


def with_secrets(blocks: Json, settings: Json) -> Json:
    """The blocks, in which a masked value is the setting it came from, where that can be told."""
    names = [name for name, value in settings.items() if value == MASK]

    def filled(value: Any, instance: str) -> Any:
        if isinstance(value, dict):
            return {key: filled(each, instance) for key, each in value.items()}
        if value != MASK:
            return value
        own = [name for name in names if name.partition("_")[0] == instance.partition("_")[0]]
        [name] = own if len(own) == 1 else names if len(names) == 1 else [""]
        return f"${{{name}}}" if name else value

    return {name: filled(block, name) for name, block in blocks.items()}


def masked_places(value: Any, path: str = "") -> list[str]:
    """Where a masked value is left, as a setting is typed."""
    if isinstance(value, Mapping):
        return [place for key, each in value.items() for place in masked_places(each, f"{path}.{key}" if path else key)]
    return [path] if isinstance(value, str) and MASK in value else []


def save_rerun(out: Path, old: OldRollout, made: Attempt) -> Json:
    """Append what came of it, under a key that the file does not have; the row as it is written."""
    of = {"key": old.meta["key"], "file": old.file.name, "finished_at": old.meta.get("finished_at")}
    target = out if made.line is not None else beside(out, "failures.jsonl")
    row: Json = loads(made.line) if made.line is not None else dict(made.failure or {})
    meta: Json = row["meta"] if made.line is not None else row
    appender = Appender(target, wait=True)
    try:
        task, repeat = split_key(made.key)[0], 0
        there = {key for _, line in read_lines(target, lost=lambda *_: None) if (key := key_in(line))}
        while f"{task}/{repeat}" in there:
            repeat += 1
        meta.update(key=f"{task}/{repeat}", rollout_index=repeat, rerun_of=of)
        if made.line is None:
            row["attempt"] = 1
        appender.append(encode(row))
    finally:
        appender.close()
    return row


def _span_names(tree: Any) -> str:
    """The first characters of all names in a tree of spans."""
    if not isinstance(tree, list):
        return ""
    spans = [each for each in tree if isinstance(each, list) and len(each) == 5 and isinstance(each[0], str)]
    return "".join(each[0][:1] + _span_names(each[4]) for each in spans)
