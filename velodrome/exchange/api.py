"""`export`: rollouts as the files that trainers read."""

from __future__ import annotations

from typing import Any

from velodrome.api.measuring import Rollouts
from velodrome.api.reading import PathLike, rollout_files
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
