"""What follows one rollout into every call that is made for it: the id of its trace, its seed, its recording.

The context that is open is ambient (a context variable), so a client deep inside a rollout can send both without being
handed anything; tasks inherit it. To servers they travel as headers: W3C's `traceparent`, and `x-velodrome-seed`. The
span that is open has a variable of its own (`timing/spans.py`), because tasks of one rollout have different ones.

A model call's seed comes from the seed of the run, the key of the rollout and the number of the call in it. Keys name
repeats, so repeats differ; a rollout that is run again has the same seeds. A request that has a seed keeps it.
"""

from __future__ import annotations

import random
import re
from contextvars import ContextVar, Token
from hashlib import blake2b
from types import TracebackType
from typing import Any

Json = dict[str, Any]

TRACE_HEADER, SEED_HEADER = "traceparent", "x-velodrome-seed"

_TRACE = re.compile(r"(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?")
_SEED = re.compile("[0-9a-f]{16}")
_ids = random.Random()  # of its own: a seed that a user sets must not repeat ids
_open: ContextVar[RolloutContext | None] = ContextVar("velodrome_rollout", default=None)


class RolloutContext:
    """One rollout, open while it is entered. A header that is not valid is as good as none.

    A server passes on the trace it was sent as it came: servers export no spans, so the caller's own span stays the
    parent of what is below. `sampled` says that the spans of the trace are kept. `recording` is for recorded models.
    """

    __slots__ = ("_calls", "_sampled", "_token", "_trace", "recording", "seed")

    def __init__(self, *, trace: str | None = None, seed: str | None = None, sampled: bool = False) -> None:
        self._trace = None if trace is None else _known(trace)
        self._sampled = sampled
        self.seed = seed if seed is not None and _SEED.fullmatch(seed) else None
        self._calls: dict[str, int] = {}
        self.recording: Any = None

    @property
    def trace(self) -> str:
        """The value of `traceparent`, made when the first call needs it; every call of this rollout sends the same."""
        if self._trace is None:
            self._trace = f"00-{_ids.getrandbits(128) or 1:032x}-{_ids.getrandbits(64) or 1:016x}-0{int(self._sampled)}"
        return self._trace

    @property
    def session(self) -> str:
        """The id of the trace, which names this rollout in every process."""
        return self.trace[3:35]

    @property
    def sampled(self) -> bool:
        """Whether the spans of this trace are kept (W3C: sampled)."""
        return self._sampled if self._trace is None else bool(int(self._trace[-2:], 16) & 1)

    def next_seed(self, role: str) -> int:
        """The seed of the next call, in 31 bits, which every server takes."""
        number = self._calls.get(role, 0)
        self._calls[role] = number + 1
        digest = blake2b(f"{self.seed}/{role}/{number}".encode(errors="surrogatepass"), digest_size=4).digest()
        return int.from_bytes(digest, "big") >> 1

    def __enter__(self) -> RolloutContext:
        self._token: Token[RolloutContext | None] = _open.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _open.reset(self._token)
        del self._token


def current() -> RolloutContext | None:
    """The rollout that is open; None outside of one."""
    return _open.get()


def rollout_seed(run: int | None, key: str) -> str | None:
    """The seed of the rollout with this key in a run with this seed; None in a run without one."""
    if run is None:
        return None
    return blake2b(f"{run}/{key}".encode(errors="surrogatepass"), digest_size=8).hexdigest()


def seeded(request: Json, role: str = "model") -> Json:
    """The request with the seed of this call, if the rollout has one and the request has none.

    Calls are numbered by role: how often a judge is called changes no answer of the model.
    """
    here = _open.get()
    if here is None or here.seed is None or request.get("seed") is not None:
        return request
    return {**request, "seed": here.next_seed(role)}


def _known(header: str) -> str | None:
    """A valid header in the version that is known here; later versions may say more at their end."""
    match = _TRACE.fullmatch(header)
    if match is None or (match[1] == "00" and match[3]):
        return None
    return f"00-{match[2]}"
