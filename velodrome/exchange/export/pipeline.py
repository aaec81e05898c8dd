"""Export: choose rollouts, turn them into records, divide them into splits, write the files and their card.

Rows stream: what is held is a number for each chosen rollout, and with `dedupe` a hash for each record. A rollout
that the format has no form for is left out, counted and reported; the others continue.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from velodrome.contracts import Json
from velodrome.errors import InputError
from velodrome.exchange.export.card import SplitFile, data_card
from velodrome.exchange.export.chat import Unfit
from velodrome.exchange.export.format import ExportSettings, Format, LeaveOut, Unit, reason
from velodrome.exchange.export.selection import Remade, Selection
from velodrome.exchange.export.split_files import Files, output_files
from velodrome.exchange.export.splits import ALL, Splits, parts
from velodrome.exchange.problems import FLAWS, Problems
from velodrome.records.facts import is_episode
from velodrome.records.other_files import foreign_file, other_file
from velodrome.records.outfile import OutFile, refuse_existing
from velodrome.settings.files import file_problem

_CHANGED = "NaN and infinite numbers are null, broken text has U+FFFD"
_EPISODE = "an episode of a policy and no conversation"
_TAKES_EPISODES = "velo export parquet takes episodes"


@dataclass(frozen=True)
class ExportOrder:
    """What to export."""

    format: Format
    sources: Sequence[Path]
    to: Path
    where: str | None = None  # None: the format's own filter
    shares: Sequence[tuple[str, float]] = ()
    seed: int = 0
    shuffle: bool = False
    dedupe: bool = False
    limit: int | None = None
    overwrite: bool = False
    settings: ExportSettings = field(default_factory=ExportSettings)

    @property
    def filter(self) -> str:
        """The filter that holds."""
        return self.format.where if self.where is None else self.where


@dataclass
class ExportResult:
    """What came of it. `unfit` rollouts were chosen but have no form in the format.

    `changed` ones held something JSON has no form for: NaN and the infinite are null, broken text has U+FFFD.
    """

    rollouts: int = 0
    chosen: int = 0
    duplicates: int = 0
    unfit: int = 0
    episodes: int = 0  # of the unfit
    changed: int = 0
    records: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


def export(order: ExportOrder) -> ExportResult:
    """Write everything, or nothing."""
    _check_sources(order.sources)
    names = [name for name, _ in order.shares] or [ALL]
    paths, card = output_files(order.to, order.format.suffix, names, split=bool(order.shares))
    refuse_existing([*paths.values(), card], order.sources, overwrite=order.overwrite)
    shares, note = parts(order.shares)
    try:
        return _chosen(replace(order, shares=shares), note, paths, card)
    except Remade:
        return _chosen(replace(order, shares=shares), note, paths, card)


def _chosen(order: ExportOrder, note: str | None, paths: dict[str, Path], card: Path) -> ExportResult:
    selection = Selection(order.sources, order.filter)
    selection.notes += [note] if note else []
    try:
        return _write(order, selection, paths, card)
    finally:
        selection.close()


def _check_sources(sources: Sequence[Path]) -> None:
    problems = [problem for source in sources if (problem := file_problem(source)) is not None]
    for at, source in enumerate(sources):
        if source.name.endswith((".failures.jsonl", ".failures.jsonl.zst")):
            problems.append(f"{source}: a failures file has no answers to export")
        elif source.is_file() and (problem := other_file(source)) is not None:
            problems.append(problem)
        if source.resolve() in [other.resolve() for other in sources[:at]]:
            problems.append(f"{source}: given twice")
    problems += filter(None, [foreign_file(source) for source in sources if source.is_file()])
    if problems:
        raise InputError(*problems)


def _write(order: ExportOrder, selection: Selection, paths: dict[str, Path], card: Path) -> ExportResult:
    fmt = order.format
    result = ExportResult(rollouts=selection.read, chosen=len(selection), notes=list(selection.notes))
    problems = Problems()
    with Files(paths, fmt.schema, selection.numeric) as files, OutFile(card) as card_file:
        units = _units(order, selection)
        for split, record, row in _records(order, units, problems, result):
            try:
                files.write(split, record)
            except TypeError as error:  # nested deeper than JSON is written; nothing of it is in the file
                problems.add(_name(row), f"it cannot be written: {error}")
            if order.limit is not None and sum(files.counts.values()) >= order.limit:
                break
        result.unfit, result.changed = problems.count, selection.changed
        result.notes += [f"{line}; left out" for line in problems.lines()]
        if result.changed:
            result.notes.append(f"changed rollouts: {result.changed} ({_CHANGED})")
        if not any(files.counts.values()):
            raise InputError(*_nothing(order, selection, result))
        selection.check()
        files.commit()
        empty = [paths[name] for name, count in files.counts.items() if not count]
        result.notes += [f"{path}: not written: no record is of this split" for path in empty]
        result.records = {str(paths[name]): count for name, count in files.counts.items() if count}
        made = [SplitFile(name, paths[name].name, count) for name, count in files.counts.items()]
        text = data_card(fmt, made, _facts(order, result), order.sources, now=time.time())
        card_file.write(text.encode("utf-8", "backslashreplace"))
        card_file.commit()
    result.files = [*map(Path, result.records), card]
    return result


def _nothing(order: ExportOrder, selection: Selection, result: ExportResult) -> list[str]:
    """Why there is not one record, as far as the counts show."""
    if result.chosen and result.episodes == result.chosen:
        chosen = "the chosen rollout is" if result.chosen == 1 else f"all {result.chosen:,} chosen rollouts are each"
        return [f"nothing to export: {chosen} {_EPISODE}; {_TAKES_EPISODES}"]
    why = f" and {result.unfit} of them have no form in it" if result.unfit else ""
    summary = (
        f"nothing to export: {result.chosen} of {result.rollouts} rollouts are chosen "
        f"by the filter {order.filter or '(none)'!r}{why}"
    )
    reasons = []
    if selection.deferred and result.unfit == result.chosen:
        (source, count), *more = selection.deferred.items()
        rest = f" (and {sum(n for _, n in more)} in other files)" if more else ""
        reasons.append(f"{count} rollouts of {source} have no reward yet{rest}; velo verify {source} gives them one")
    elif not result.chosen and "reward" in order.filter and (between := selection.rewards()) is not None:
        low, high = between
        reasons.append(f"every reward is {low:g}" if low == high else f"the rewards go from {low:g} to {high:g}")
    elif result.chosen > result.unfit and order.format.needs:
        tasks, several, varied = selection.spread()
        counts = f"tasks: {tasks}, with several rollouts: {several}, with different rewards: {varied}"
        reasons += [order.format.needs, counts]
    if not (result.chosen or order.format.episodes) and (first := selection.first()) and is_episode(first):
        return [f"{summary}; the first rollout is {_EPISODE}; {_TAKES_EPISODES}"]
    return [summary, *reasons, *result.notes]


def _units(order: ExportOrder, selection: Selection) -> Iterator[Unit]:
    splits = Splits(order.shares, selection.tasks if order.shares else (), order.seed)
    by_task = order.format.by_task
    for task, rows, sources in selection.units(by_task=by_task, shuffle=order.shuffle, seed=order.seed):
        yield Unit(splits.of(task), rows, sources)


def _records(
    order: ExportOrder, units: Iterable[Unit], problems: Problems, result: ExportResult
) -> Iterator[tuple[str, Json, Json]]:
    """Every record with its split and its first rollout; what cannot be one is noted."""

    def leave_out(row: Json, error: Exception) -> None:
        problems.add(_name(row), reason(row, error))

    convert = order.format.start(order.settings, leave_out)
    seen: set[bytes] = set()
    for unit in units if order.format.episodes else _conversations(units, leave_out, result):
        try:
            for record in convert(unit):
                if order.dedupe:
                    digest = _digest(order.format.content(record))
                    if digest in seen:
                        result.duplicates += 1
                        continue
                    seen.add(digest)
                yield unit.split, record, unit.rows[0]
        except FLAWS as error:
            leave_out(unit.rows[0], error)


def _conversations(units: Iterable[Unit], leave_out: LeaveOut, result: ExportResult) -> Iterator[Unit]:
    """The units without the episodes in them, which are reported: an episode has no text of its own."""
    for unit in units:
        kept = [(row, source) for row, source in zip(unit.rows, unit.sources, strict=True) if not is_episode(row)]
        if len(kept) < len(unit.rows):
            result.episodes += len(unit.rows) - len(kept)
            for row in filter(is_episode, unit.rows):
                leave_out(row, Unfit(_EPISODE))
        if kept:
            yield replace(unit, rows=[row for row, _ in kept], sources=[source for _, source in kept])


def _name(row: Json) -> str:
    meta = row.get("meta")
    return f"rollout {meta.get('key') if isinstance(meta, dict) else '?'}"


def _digest(content: Any) -> bytes:
    return hashlib.blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=12).digest()


def _facts(order: ExportOrder, result: ExportResult) -> Json:
    """What the card says about the choice."""
    facts: Json = {
        "rollouts in the sources": result.rollouts,
        "filter": order.filter.strip() or "none: every rollout",
        "chosen by it": result.chosen,
        "no form in this format": result.unfit,
    }
    if result.changed:
        facts[f"changed: {_CHANGED}"] = result.changed
    if order.dedupe:
        facts["equal records left out"] = result.duplicates
    if order.shares:
        facts["split by task"] = ", ".join(f"{name} {share:.4g}" for name, share in order.shares)
    if order.shuffle or order.shares:
        facts["seed"] = order.seed
    if order.shuffle:
        facts["shuffled"] = "yes"
    if order.limit is not None:
        facts["limit"] = order.limit
    return facts | {name: getattr(order.settings, name) for name in order.format.settings}
