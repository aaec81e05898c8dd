"""What the measurements amount to: medians with their range, budgets, and a table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

Json = dict[str, Any]

FAR = 2.0  # beyond this factor a miss is not the machine's load


def spread(values: Sequence[float]) -> Json:
    """Median, lowest, highest."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "n": len(values)}


def shown(figure: Json, digits: int = 2) -> str:
    """`median (low-high)`."""
    return f"{figure['median']:.{digits}f} ({figure['low']:.{digits}f}-{figure['high']:.{digits}f})"


@dataclass(frozen=True)
class Check:
    """A figure beside its budget. `least` turns the budget into a lower bound."""

    what: str
    value: float
    budget: float
    unit: str = ""
    least: bool = False

    @property
    def kept(self) -> bool:
        return self.value >= self.budget if self.least else self.value <= self.budget

    @property
    def far(self) -> bool:
        """Whether it is missed by more than a busy machine explains."""
        return self.value * FAR < self.budget if self.least else self.value > self.budget * FAR

    def cells(self) -> list[str]:
        """One line of the table."""
        sign = ">=" if self.least else "<="
        unit = f" {self.unit}" if self.unit else ""
        outcome = "ok" if self.kept else "MISSED BY FAR" if self.far else "MISSED"
        return [self.what, f"{self.value:.3g}{unit}", f"{sign} {self.budget:g}{unit}", outcome]

    def as_json(self) -> Json:
        """For the results file."""
        return {**asdict(self), "kept": self.kept, "far": self.far}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table with its columns in line."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def concluded(found: Json, made: Sequence[Check], *, json: Path | None, check: bool) -> int:
    """Write the figures where they are wanted; the exit code: 1 for a miss by far, with `check` for any."""
    if json:
        json.parent.mkdir(parents=True, exist_ok=True)
        data = {**found, "checks": [each.as_json() for each in made]}
        json.write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return int(any(not each.kept if check else each.far for each in made))
