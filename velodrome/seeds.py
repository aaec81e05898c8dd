"""The seeds of model calls, from the seed of the run, the key of the rollout and the number of the call in it.

Keys name repeats, so repeats differ; a rollout that is made again has the same seeds. The rollout that is open is
ambient, like its trace, and its seed travels to servers in a header. A request that has a seed keeps it.
"""

from __future__ import annotations

import re
from contextvars import ContextVar, Token
from hashlib import blake2b
from types import TracebackType
from typing import Any

Json = dict[str, Any]

HEADER = "x-velodrome-seed"

_VALID = re.compile("[0-9a-f]{16}")
_open: ContextVar[RolloutSeed | None] = ContextVar("velodrome_seed", default=None)


class RolloutSeed:
    """The seed of one rollout, open while it is entered. Without a value the one around it stays."""

    __slots__ = ("_calls", "_token", "value")

    def __init__(self, value: str | None) -> None:
        self.value = value if value is not None and _VALID.fullmatch(value) else None
        self._calls: dict[str, int] = {}
        self._token: Token[RolloutSeed | None] | None = None

    def next(self, role: str) -> int:
        """The seed of the next call, in 31 bits, which every server takes."""
        number = self._calls.get(role, 0)
        self._calls[role] = number + 1
        digest = blake2b(f"{self.value}/{role}/{number}".encode(errors="surrogatepass"), digest_size=4).digest()
        return int.from_bytes(digest, "big") >> 1

    def __enter__(self) -> RolloutSeed:
        if self.value is not None:
            self._token = _open.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _open.reset(self._token)
            self._token = None


def rollout_seed(run: int | None, key: str) -> RolloutSeed:
    """The seed of the rollout with this key in a run with this seed."""
    if run is None:
        return RolloutSeed(None)
    return RolloutSeed(blake2b(f"{run}/{key}".encode(errors="surrogatepass"), digest_size=8).hexdigest())


def seeded(request: Json, role: str = "model") -> Json:
    """The request with the seed of this call, if the rollout has one and the request has none.

    Calls are numbered by role: how often a judge is asked changes no answer of the model.
    """
    here = _open.get()
    if here is None or request.get("seed") is not None:
        return request
    return {**request, "seed": here.next(role)}


def header() -> str | None:
    """What a call to a server carries; None outside of a rollout with a seed."""
    here = _open.get()
    return None if here is None else here.value
