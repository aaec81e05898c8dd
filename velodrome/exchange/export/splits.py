"""The split of each task. A task is in one only, however many rollouts, files or equal copies it has."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from math import isclose, isfinite

from velodrome.errors import InputError

ALL = "train"  # the name of the only split

_COPY = re.compile(r"#\d+$")  # what the collector adds to the id of a row that is equal to an earlier one
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def parse_shares(text: str) -> list[tuple[str, float]]:
    """`train=0.9,test=0.1`, parsed."""
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
    return list(shares.items())


def parts(shares: Sequence[tuple[str, float]]) -> tuple[list[tuple[str, float]], str | None]:
    """Shares that add up to one, scaled if they did not, with a note."""
    whole = sum(share for _, share in shares)
    if not shares or isclose(whole, 1.0):
        return list(shares), None
    normalised = [(name, share / whole) for name, share in shares]
    listed = ", ".join(f"{name} {share:.4g}" for name, share in normalised)
    return normalised, f"split: the shares add up to {whole:.4g}, not to 1; they are scaled to {listed}"


def task_hash(task: str) -> int:
    """A task's number; equal rows of an input have one."""
    return int.from_bytes(hashlib.blake2b(_COPY.sub("", task).encode(), digest_size=8).digest(), "big")


class Splits:
    """Tasks divided by shares, as exactly as whole tasks allow; the seed decides which task goes where."""

    def __init__(self, shares: Sequence[tuple[str, float]], tasks: Iterable[int], seed: int) -> None:
        self.names = [name for name, _ in shares] or [ALL]
        self._ends: list[int] = []
        self._seed = seed
        if len(shares) < 2:
            return
        order = sorted({drawn(task, seed) for task in tasks})
        share, dealt = 0.0, 0
        for _, part in shares[:-1]:
            share += part
            dealt = max(dealt, round(share * len(order)))
            self._ends.append(order[dealt] if dealt < len(order) else 2**64)

    def of(self, task: int) -> str:
        """The split of a task."""
        if not self._ends:
            return self.names[0]
        place = drawn(task, self._seed)
        return next((name for name, end in zip(self.names, self._ends, strict=False) if place < end), self.names[-1])


def drawn(number: int, seed: int, purpose: str = "") -> int:
    """A number that looks random and is the same for the same seed; numbers for two purposes have nothing in common."""
    key, person = str(seed).encode()[:64], purpose.encode()
    return int.from_bytes(
        hashlib.blake2b(number.to_bytes(8, "big"), digest_size=8, key=key, person=person).digest(), "big"
    )
