"""Faults to inject: what goes wrong, and with which calls.

Which calls are hit depends on the count of calls and a seed alone, so a run can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from velodrome.errors import InputError
from velodrome.settings.spelling import hint

KINDS = ("status", "garbage", "half_body", "reset", "never")


@dataclass(frozen=True)
class Fault:
    """One kind of fault. It hits the first `times` calls, every `every`-th call, or a share `rate` of them."""

    kind: str
    status: int = 500
    retry_after_s: float | None = None
    body: str = '{"error": {"message": "a scripted fault", "type": "scripted"}}'
    times: int | None = None
    every: int | None = None
    rate: float | None = None

    def hits(self, call: int, chance: random.Random) -> bool:
        """Whether the call with this number (from 0) is hit."""
        if self.times is not None:
            return call < self.times
        if self.every is not None:
            return (call + 1) % self.every == 0
        return self.rate is None or chance.random() < self.rate


def make_faults(given: Sequence[Mapping[str, Any]]) -> list[Fault]:
    """The faults of a config block; every mistake is named."""
    names = [field.name for field in fields(Fault)]
    problems, found = [], []
    for number, block in enumerate(given):
        where = f"scripted_model: faults[{number}]"
        for name in block:
            if name not in names:
                problems.append(f'{where}: unknown key "{name}"{hint(name, names)}')
        if block.get("kind") not in KINDS:
            problems.append(f"{where}: kind is one of {', '.join(KINDS)}, not {block.get('kind')!r}")
        elif block.get("every") is not None and block["every"] < 1:
            problems.append(f"{where}: every is at least 1, not {block['every']!r}")
        elif not problems:
            found.append(Fault(**block))
    if problems:
        raise InputError(*problems)
    return found
