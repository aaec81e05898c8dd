"""`export` and `merge`: rollouts as other files: those that trainers read, or those of several runs as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from velodrome.api.call import public_call
from velodrome.api.measuring import Rollouts
from velodrome.api.reading import PathLike, named_files, rollout_files
from velodrome.collector.merging import MergeOptions, MergeResult
from velodrome.collector.merging import merge as write_merged
from velodrome.errors import InputError
from velodrome.exchange.export.format import ExportOptions
from velodrome.exchange.export.formats import FORMATS
from velodrome.exchange.export.pipeline import ExportResult
from velodrome.exchange.export.pipeline import export as write_export
from velodrome.index.check_field import file_checks
from velodrome.settings.names import hint


def export(format: str, rollouts: Rollouts, to: PathLike, **options: Any) -> ExportResult:
    """Write rollouts as training data (`"sft"`, `"dpo"`, `"grpo"`, `"verl"`, `"parquet"`, …), with a data card.

    The options are those of `velo export`: `where`, `split`, `shuffle`, `seed`, `dedupe`, `limit`, `overwrite`, and the
    settings of the format. The result counts the rollouts and the records, and names the files.
    """
    checked = ExportOptions.read({"to": to, **options}, "export")
    if not isinstance(format, str) or format not in FORMATS:
        near = hint(str(format), FORMATS) or f"; the formats are {', '.join(FORMATS)}"
        raise InputError(f"no format {format!r:.40}{near}")
    with rollout_files(rollouts) as files:
        return write_export(FORMATS[format], files, checked, lambda path: [file_checks(path)])


@public_call
def merge(out: PathLike, rollouts: PathLike | Iterable[PathLike], *, allow_mixed: bool = False) -> MergeResult:
    """Write the rollouts of several files as one that `collect` can continue, each key once, with failures and runs.

    The first rollout of a key is taken. Nothing is overwritten, and nothing is written if anything is wrong, such as,
    without `allow_mixed`, rollouts made with different settings. The result counts `rollouts`, those `repeated`,
    `failures` and lines that are `left_out`, which `notes` names.
    """
    values = {"out": out, "files": tuple(named_files(rollouts)), "allow_mixed": allow_mixed}
    return write_merged(MergeOptions.read(values, "merge"))
