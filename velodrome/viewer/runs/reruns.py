"""A rollout that was run again (`velo rerun`) and the one it came from: each leads to both side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from velodrome.errors import InputError
from velodrome.index import Entry
from velodrome.records.rollout import beside
from velodrome.viewer.pages.links import pair_address
from velodrome.viewer.parts.render import number
from velodrome.viewer.runs.known_runs import KnownRuns
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]


def rerun_links(runs: KnownRuns, source: ViewedFile, entry: Entry) -> list[tuple[str, str]]:
    """What a link says, and where it leads: to the old rollout of a new one, or to every new one of an old one."""
    found = []
    of = _origin(source, entry.number)
    name = Path(str(of.get("file"))).name if of is not None else ""
    if of is not None and name and (old := _viewed(runs, source.path.with_name(name))) is not None:
        there = old.index().find(str(of.get("key")))
        if there is not None:
            label = f"a rerun of {old.name}: see both side by side"
            found.append((label, pair_address(old.slug, there, source.slug, entry.number)))
    new = _viewed(runs, beside(source.path, "rerun.jsonl"))
    if new is None or new is source or (family := new.index().repeats(entry.task)) is None:
        return found
    for each in family.entries:
        of = _origin(new, each.number)
        if of is not None and (of.get("key"), of.get("finished_at")) == (entry.key, entry.numbers.get("finished_at")):
            came = "failed" if each.state == "failed" else f"reward {number(each.reward)}"
            label = f"run again ({came}): see both side by side"
            found.append((label, pair_address(source.slug, entry.number, new.slug, each.number)))
    return found


def _viewed(runs: KnownRuns, path: Path) -> ViewedFile | None:
    """The run of a file, if this viewer has it."""
    known = next((run for run in runs.all() if run.found.path.absolute() == path.absolute()), None)
    return None if known is None or known.found.kind != "rollouts" else runs.file(known.slug)


def _origin(source: ViewedFile, number_: int) -> Json | None:
    """What a row says it is a rerun of."""
    try:
        row = source.index().row(number_)
    except InputError:  # the file is being changed
        return None
    meta = row.get("meta") if isinstance(row.get("meta"), dict) else row
    of = meta.get("rerun_of") if isinstance(meta, dict) else None
    return of if isinstance(of, dict) else None
