"""Export: choose rollouts, turn them into records, divide them into splits, write the files and their card.

Rows stream: what is held is a number for each chosen rollout, and a hash for each record. A rollout
that the format has no form for is left out, counted and reported; the others continue.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from velodrome.contracts import Json
from velodrome.errors import InputError
from velodrome.exchange.export.card import data_card
from velodrome.exchange.export.chat import Unfit
from velodrome.exchange.export.format import ExportOptions, ExportSettings, Format, LeaveOut, Unit, reason
from velodrome.exchange.export.selection import OutsideFields, Selection
from velodrome.exchange.export.split_files import RecordFile, Splits, listed, output_files, parse_shares
from velodrome.exchange.parquet import schema_of
from velodrome.exchange.problems import FLAWS, Problems
from velodrome.records.facts import is_episode
from velodrome.records.outfile import OutFile, refuse_existing

_CHANGED = "NaN and infinite numbers are null, broken text has U+FFFD"
_EPISODE = "an episode of a policy and no conversation"
_MOST_REMARKS = 20
_TAKES_EPISODES = "velo export parquet takes episodes"


class Loose(Exception):
    """A record does not fit the schema of the file, which must be written again with the loose one."""


@dataclass
class ExportResult:
    """The result. `unfit` rollouts were chosen but have no form in the format.

    `changed` ones held something JSON has no form for: NaN and the infinite are null, broken text has U+FFFD.
    """

    rollouts: int = 0
    chosen: int = 0
    duplicates: int = 0  # records that equal an earlier one; left out only with `dedupe`
    unfit: int = 0
    unfit_reasons: dict[str, int] = field(default_factory=dict)  # how many for each
    episodes: int = 0  # of the unfit
    changed: int = 0
    records: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


@dataclass(frozen=True)
class Export:
    """An export in progress: its options, the chosen rollouts, and the result so far."""

    format: Format
    sources: Sequence[Path]
    options: ExportOptions
    shares: Mapping[str, float]
    selection: Selection
    result: ExportResult
    problems: Problems

    @property
    def filter(self) -> str:
        return _filter(self.format, self.options)


def _filter(fmt: Format, options: ExportOptions) -> str:
    return fmt.where if options.where is None else options.where


def export(
    fmt: Format, sources: Sequence[Path], options: ExportOptions, outside: OutsideFields = lambda path: ()
) -> ExportResult:
    """Write everything, or nothing. `outside` has further fields for the filter, of each file."""
    foreign = (options.model_fields_set & ExportSettings.model_fields.keys()) - {*fmt.settings}
    if foreign:
        raise InputError(f"{fmt.name} has no setting {', '.join(sorted(foreign))} (see docs/export.md)")
    if options.to.name.endswith(".parquet") and fmt.schema is None and (types := fmt.types(options)):
        fmt = replace(fmt, schema=lambda package, numeric: schema_of(package, types))
    shares, note = parse_shares(options.split)
    paths, card = output_files(options.to, fmt.suffix, list(shares), split=options.split is not None)
    refuse_existing([*paths.values(), card], sources, overwrite=options.overwrite)

    def write(fmt: Format) -> ExportResult:
        selection = Selection(sources, _filter(fmt, options), outside)
        result = ExportResult(rollouts=selection.read, chosen=len(selection))
        result.notes = [*selection.notes, *([note] if note else [])]
        return _write(Export(fmt, sources, options, shares, selection, result, Problems()), paths, card)

    try:
        return write(fmt)
    except Loose:
        return write(replace(fmt, schema=fmt.loose_schema, loose_schema=None))


def _write(one: Export, paths: dict[str, Path], card: Path) -> ExportResult:
    result, options = one.result, one.options
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(RecordFile(path, one.format.schema, one.selection.numeric))
            for name, path in paths.items()
        }
        card_file = stack.enter_context(OutFile(card))
        remarks: Counter[str] = Counter()
        for split, record, row in _records(one):
            if one.format.loose_schema is not None and one.format.loose(record):
                raise Loose
            try:
                files[split].add(record)
            except TypeError as error:  # nested deeper than JSON is written; nothing of it is in the file
                one.problems.add(_name(row), f"it cannot be written: {error}")
            else:
                remarks.update(one.format.remarks(record))
            if options.limit is not None and sum(file.count for file in files.values()) >= options.limit:
                break
        result.unfit, result.changed = one.problems.count, one.selection.changed
        result.unfit_reasons = one.problems.kinds()
        result.notes += [f"{line}; left out" for line in one.problems.lines()]
        if result.changed:
            result.notes.append(f"changed rollouts: {result.changed} ({_CHANGED})")
        if not any(file.count for file in files.values()):
            raise InputError(*_nothing(one))
        result.notes += _few(one, sum(file.count for file in files.values()))
        reader_notes = [f"records: {count}: {remark}" for remark, count in remarks.most_common(_MOST_REMARKS)]
        result.notes += reader_notes
        one.selection.check()
        for file in files.values():
            file.finish()
        for file in files.values():
            file.commit()
        empty = [file.path for file in files.values() if not file.count]
        result.notes += [f"{path}: not written: no record is of this split" for path in empty]
        result.records = {str(file.path): file.count for file in files.values() if file.count}
        counts = {name: (file.path.name, file.count) for name, file in files.items()}
        types = one.format.types(options) if one.format.schema is None else {}
        text = data_card(one.format, counts, _facts(one), reader_notes, one.sources, types, now=time.time())
        card_file.write(text.encode("utf-8", "backslashreplace"))
        card_file.commit()
    result.files = [*map(Path, result.records), card]
    return result


def _nothing(one: Export) -> list[str]:
    """Why there are no records."""
    result, selection = one.result, one.selection
    if result.chosen and result.episodes == result.chosen:
        chosen = "the chosen rollout is" if result.chosen == 1 else f"all {result.chosen:,} chosen rollouts are each"
        return [f"nothing to export: {chosen} {_EPISODE}; {_TAKES_EPISODES}"]
    why = f" and {result.unfit} of them have no form in it" if result.unfit else ""
    summary = (
        f"nothing to export: {result.chosen} of {result.rollouts} rollouts are chosen "
        f"by the filter {one.filter or '(none)'!r}{why}"
    )
    reasons = [
        f"{count} rollouts of {source} have no reward yet; velo verify {source} gives them one"
        for source, count in selection.deferred.items()
    ]
    return [summary, *reasons, *(_few(one, 0) if result.chosen > result.unfit else []), *result.notes]


def _few(one: Export, records: int) -> list[str]:
    """For a format whose records take several rollouts: how many tasks have them, and what else a record takes."""
    if not one.format.needs:
        return []
    tasks, several, varied = one.selection.spread()
    counts = f"tasks: {tasks}, with several rollouts: {several}, with different rewards: {varied}"
    return [*([one.format.needs] if records < tasks else []), counts]


def _records(one: Export) -> Iterator[tuple[str, Json, Json]]:
    """Every record with its split and its first rollout; rollouts without a form are noted."""

    def leave_out(row: Json, error: Exception) -> None:
        one.problems.add(_name(row), reason(row, error))

    fmt, options = one.format, one.options
    splits = Splits(one.shares, one.selection.tasks, options.seed)
    convert = fmt.start(options, leave_out)
    seen: set[bytes] = set()
    for task, rows, sources in one.selection.units(by_task=fmt.by_task, shuffle=options.shuffle, seed=options.seed):
        unit = Unit(splits.of(task), rows, sources)
        if not fmt.episodes:
            unit = _without_episodes(unit, leave_out)
            one.result.episodes += len(rows) - len(unit.rows)
            if not unit.rows:
                continue
        try:
            for record in convert(unit):
                digest = _digest(fmt.content(record))
                if digest in seen:
                    one.result.duplicates += 1
                    if options.dedupe:
                        continue
                seen.add(digest)
                yield unit.split, record, unit.rows[0]
        except FLAWS as error:
            leave_out(unit.rows[0], error)


def _without_episodes(unit: Unit, leave_out: LeaveOut) -> Unit:
    """The conversations of a unit; an episode has no text of its own."""
    kept = []
    for row, source in zip(unit.rows, unit.sources, strict=True):
        if is_episode(row):
            leave_out(row, Unfit(_EPISODE))
        else:
            kept.append((row, source))
    return Unit(unit.split, [row for row, _ in kept], [source for _, source in kept])


def _name(row: Json) -> str:
    meta = row.get("meta")
    return f"rollout {meta.get('key') if isinstance(meta, dict) else '?'}"


def _digest(content: Any) -> bytes:
    return hashlib.blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=12).digest()


def _facts(one: Export) -> Json:
    """What the card says about the choice."""
    result, options = one.result, one.options
    facts: Json = {
        "rollouts in the sources": result.rollouts,
        "filter": one.filter.strip() or "none: every rollout",
        "chosen by it": result.chosen,
        "no form in this format": result.unfit,
    }
    facts |= {f"left out: {why}": count for why, count in result.unfit_reasons.items()}
    if one.format.needs:
        tasks, several, varied = one.selection.spread()
        facts |= {"tasks": tasks, "tasks with several rollouts": several, "tasks with different rewards": varied}
    if result.changed:
        facts[f"changed: {_CHANGED}"] = result.changed
    facts["equal records left out" if options.dedupe else "records that equal an earlier one"] = result.duplicates
    if options.split is not None:
        facts["split by task"] = listed(one.shares)
    if options.shuffle or options.split is not None:
        facts["seed"] = options.seed
    if options.shuffle:
        facts["shuffled"] = "yes"
    if options.limit is not None:
        facts["limit"] = options.limit
    return facts | {name: getattr(options, name) for name in one.format.settings}
