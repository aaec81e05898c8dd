"""The split of each task. A task is in one only, however many rollouts, files or equal copies it has."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from math import isclose, isfinite

from velodrome.errors import InputError
from velodrome.records.task import hashed

ALL = "train"  # the name of the only split

_COPY = re.compile(r"#\d+$")  # what the collector adds to the id of a row that is equal to an earlier one
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def parse_shares(text: str | None) -> tuple[dict[str, float], str | None]:
    """`train=0.9,test=0.1`, parsed; shares that do not add up to 1 are scaled, with a note. None is one split."""
    if text is None:
        return {ALL: 1.0}, None
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        try:
            number = float(share)
        except ValueError:
            number = -1.0
        if not _NAME.fullmatch(name.strip()) or not isfinite(number) or number <= 0 or name.strip() in shares:
            raise InputError(f"split: {part!r:.60} is not a name with its share; train=0.9,test=0.1")
        shares[name.strip()] = number
    whole = sum(shares.values())
    if isclose(whole, 1.0):
        return shares, None
    scaled = {name: share / whole for name, share in shares.items()}
    return scaled, f"split: the shares add up to {whole:.4g}, not to 1; they are scaled to {listed(scaled)}"


def listed(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.4g}" for name, share in shares.items())


def task_hash(task: str) -> int:
    """A task's number; equal rows of an input have one."""
    return hashed(_COPY.sub("", task))


class Splits:
    """Tasks divided by shares, as exactly as whole tasks allow; the seed decides which task goes where."""

    def __init__(self, shares: Mapping[str, float], tasks: Iterable[int], seed: int) -> None:
        self._names = list(shares)
        self._ends: list[int] = []  # of all but the last
        self._seed = seed
        order = sorted({drawn(task, seed) for task in tasks}) if len(shares) > 1 else []
        share, dealt = 0.0, 0
        for name in self._names[:-1]:
            share += shares[name]
            dealt = max(dealt, round(share * len(order)))
            self._ends.append(order[dealt] if dealt < len(order) else 2**64)

    def of(self, task: int) -> str:
        place = drawn(task, self._seed)
        return next((name for name, end in zip(self._names, self._ends, strict=False) if place < end), self._names[-1])


def drawn(number: int, seed: int, purpose: str = "") -> int:
    """A number that looks random and is the same for the same seed; numbers for two purposes have nothing in common."""
    key, person = str(seed).encode()[:64], purpose.encode()
    return int.from_bytes(
        hashlib.blake2b(number.to_bytes(8, "big"), digest_size=8, key=key, person=person).digest(), "big"
    )
