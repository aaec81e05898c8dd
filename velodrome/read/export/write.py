"""Export: choose rollouts, turn them into records, deal them out to splits, write the files and their card.

Rows stream: what is held is a number for each chosen rollout, and with `dedupe` a hash for each record. A rollout
that the format has no form for is left out, counted and told; it never stops the others.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError
from velodrome.read.export.card import data_card
from velodrome.read.export.files import Files, output_files
from velodrome.read.export.format import FLAWS, Format, Settings, Unit, reason
from velodrome.read.export.select import Selection
from velodrome.read.export.splits import ALL, Splits
from velodrome.read.outfile import OutFile, refuse_existing
from velodrome.read.problems import Problems

Json = dict[str, Any]


@dataclass(frozen=True)
class Order:
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
    settings: Settings = field(default_factory=Settings)

    @property
    def filter(self) -> str:
        """The filter that holds."""
        return self.format.where if self.where is None else self.where


@dataclass
class Outcome:
    """What came of it. `unfit` rollouts were chosen but have no form in the format."""

    rollouts: int = 0
    chosen: int = 0
    duplicates: int = 0
    unfit: int = 0
    records: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


def export(order: Order) -> Outcome:
    """Write everything, or nothing."""
    _check_sources(order.sources)
    names = [name for name, _ in order.shares] or [ALL]
    paths, card = output_files(order.to, order.format.suffix, names, split=bool(order.shares))
    refuse_existing([*paths.values(), card], order.sources, overwrite=order.overwrite)
    selection = Selection(order.sources, order.filter)
    try:
        return _write(order, selection, paths, card)
    finally:
        selection.close()


def _check_sources(sources: Sequence[Path]) -> None:
    problems = [f"{source}: no such file" for source in sources if not source.is_file()]
    for at, source in enumerate(sources):
        if source.name.endswith((".failures.jsonl", ".failures.jsonl.zst")):
            problems.append(f"{source}: a failures file has no answers to export")
        if source.resolve() in [other.resolve() for other in sources[:at]]:
            problems.append(f"{source}: given twice")
    if problems:
        raise InputError(*problems)


def _write(order: Order, selection: Selection, paths: dict[str, Path], card: Path) -> Outcome:
    fmt = order.format
    found = Outcome(rollouts=selection.read, chosen=len(selection), notes=list(selection.notes))
    problems = Problems()
    settings = replace(order.settings, numbers=selection.numeric)
    with Files(paths, fmt.schema, settings) as files, OutFile(card) as card_file:
        units = _units(order, selection)
        for split, record in _records(order, units, settings, problems, found):
            try:
                files.write(split, record)
            except TypeError as error:  # nested deeper than JSON is written; nothing of it is in the file
                problems.add("a record", f"it cannot be written: {error}")
            if order.limit is not None and sum(files.counts.values()) >= order.limit:
                break
        found.unfit = problems.count
        found.notes += [f"{line}; left out" for line in problems.lines()]
        if not any(files.counts.values()):
            why = f" and {found.unfit} of them have no form in it" if found.unfit else ""
            raise InputError(
                f"nothing to export: {found.chosen} of {found.rollouts} rollouts are chosen "
                f"by the filter {order.filter or '(none)'!r}{why}",
                *found.notes,
            )
        selection.check()
        files.commit()
        found.records = {str(paths[name]): count for name, count in files.counts.items()}
        counts = {paths[name].name: count for name, count in files.counts.items()}
        card_file.write(data_card(fmt, counts, _facts(order, found), order.sources, now=time.time()).encode())
        card_file.commit()
    found.files = [*paths.values(), card]
    return found


def _units(order: Order, selection: Selection) -> Iterator[Unit]:
    splits = Splits(order.shares, selection.tasks if order.shares else (), order.seed)
    for task, rows in selection.units(by_task=order.format.by_task, shuffle=order.shuffle, seed=order.seed):
        yield Unit(splits.of(task), rows)


def _records(
    order: Order, units: Iterable[Unit], settings: Settings, problems: Problems, found: Outcome
) -> Iterator[tuple[str, Json]]:
    """Every record with its split; what cannot be one is noted."""

    def tell(row: Json, error: Exception) -> None:
        meta = row.get("meta")
        problems.add(f"rollout {meta.get('key') if isinstance(meta, dict) else '?'}", reason(error))

    convert = order.format.start(settings, tell)
    seen: set[bytes] = set()
    for unit in units:
        try:
            for record in convert(unit):
                if order.dedupe:
                    digest = _digest(order.format.content(record))
                    if digest in seen:
                        found.duplicates += 1
                        continue
                    seen.add(digest)
                yield unit.split, record
        except FLAWS as error:
            tell(unit.rows[0], error)


def _digest(content: Any) -> bytes:
    return hashlib.blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=12).digest()


def _facts(order: Order, found: Outcome) -> Json:
    """What the card says about the choice."""
    facts: Json = {
        "rollouts in the sources": found.rollouts,
        "filter": order.filter,
        "chosen by it": found.chosen,
        "no form in this format": found.unfit,
    }
    if order.dedupe:
        facts["equal records left out"] = found.duplicates
    if order.shares:
        facts["split by task"] = ", ".join(f"{name} {share:.4g}" for name, share in order.shares)
    if order.shuffle or order.shares:
        facts["seed"] = order.seed
    if order.shuffle:
        facts["shuffled"] = "yes"
    if order.limit is not None:
        facts["limit"] = order.limit
    for name in order.format.settings:
        holder = order.settings.style if name in ("arguments", "reasoning") else order.settings
        facts[name] = getattr(holder, name)
    return facts
