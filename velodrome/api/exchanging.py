"""`export`: rollouts as the files that trainers read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from velodrome.api.measuring import Rollouts
from velodrome.api.reading import PathLike, rollout_files
from velodrome.errors import InputError
from velodrome.exchange.export.format import ExportSettings, Format
from velodrome.exchange.export.formats import FORMATS
from velodrome.exchange.export.pipeline import ExportOrder, ExportResult
from velodrome.exchange.export.pipeline import export as write_export
from velodrome.exchange.export.splits import parse_shares
from velodrome.settings.names import hint
from velodrome.settings.values import Count, FilePath, Text


class ExportOptions(ExportSettings):
    """What is exported, in which order, and in what form."""

    to: FilePath = Field(description="a file, or a folder (a name without a suffix)")
    where: str | None = Field(
        None, title="FILTER", description='which rollouts, as in velo view [sft, sharegpt: "reward>=1"; else all]'
    )
    split: Text | None = Field(
        None, title="SHARES", description="train=0.9,test=0.1: shares of the tasks; a task is in one split only"
    )
    seed: int = Field(0, description="the seed of the shuffle and the split")
    shuffle: bool = Field(False, description="shuffle, in an order that the seed decides")
    dedupe: bool = Field(False, description="leave out records that equal an earlier one")
    limit: Count | None = Field(None, description="the most records in all")
    overwrite: bool = Field(False, description="replace existing files")

    def check_format(self, fmt: Format) -> None:
        """Raise if a setting was given that the format does not have."""
        foreign = (self.model_fields_set & ExportSettings.model_fields.keys()) - {*fmt.settings}
        if foreign:
            raise InputError(f"{fmt.name} has no setting {', '.join(sorted(foreign))} (see docs/export.md)")


def export(format: str, rollouts: Rollouts, to: PathLike, **options: Any) -> ExportResult:
    """Write rollouts as training data (`"sft"`, `"dpo"`, `"grpo"`, `"verl"`, `"parquet"`, …), with a data card.

    The options are those of `velo export`: `where`, `split`, `shuffle`, `seed`, `dedupe`, `limit`, `overwrite`, and the
    settings of the format. The result counts the rollouts and the records, and names the files.
    """
    checked = ExportOptions.read({"to": Path(to), **options}, "export")
    fmt = export_format(format)
    checked.check_format(fmt)
    with rollout_files(rollouts) as files:
        order = ExportOrder(
            format=fmt,
            sources=files,
            to=checked.to,
            where=checked.where,
            shares=parse_shares(checked.split) if checked.split is not None else (),
            seed=checked.seed,
            shuffle=checked.shuffle,
            dedupe=checked.dedupe,
            limit=checked.limit,
            overwrite=checked.overwrite,
            settings=checked,
        )
        return write_export(order)


def export_format(name: str) -> Format:
    """The format of this name."""
    if name not in FORMATS:
        raise InputError(f"no format {name!r:.40}{hint(name, FORMATS) or '; the formats are ' + ', '.join(FORMATS)}")
    return FORMATS[name]
