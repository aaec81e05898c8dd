"""The context of one rollout in every call that it makes: the id of its trace, its seed, its recording.

The current context is a context variable, so a client deep inside a rollout can send the trace and the seed without
parameters; tasks inherit it. They are sent to servers as headers: W3C's `traceparent`, and `x-velodrome-seed`. The
current span is a separate variable (`timing/spans.py`), because tasks of one rollout have different spans.

A model call's seed comes from the seed of the run, the key of the rollout and the number of the call in it. Repeats
have different keys, so they have different seeds; a rollout that runs again has the same seeds. A request with a seed
keeps it.
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
_ids = random.Random()  # separate, so that a user's random.seed() does not repeat ids
_open: ContextVar[RolloutContext | None] = ContextVar("velodrome_rollout", default=None)


class RolloutContext:
    """The context of one rollout, current inside a `with` block. An invalid header is ignored.

    A server forwards the trace header unchanged: it exports no spans, so the caller's span stays the parent of later
    spans. `sampled`: the spans of the trace are exported. `recording` is for recorded models.
    """

    __slots__ = ("_calls", "_sampled", "_token", "_trace", "recording", "seed")

    def __init__(self, *, trace: str | None = None, seed: str | None = None, sampled: bool = False) -> None:
        self._trace = None if trace is None else _parse_trace(trace)
        self._sampled = sampled
        self.seed = seed if seed is not None and _SEED.fullmatch(seed) else None
        self._calls: dict[str, int] = {}
        self.recording: Any = None

    @property
    def trace(self) -> str:
        """The value of `traceparent`, created on first use; all calls of the rollout send the same."""
        if self._trace is None:
            self._trace = f"00-{_ids.getrandbits(128) or 1:032x}-{_ids.getrandbits(64) or 1:016x}-0{int(self._sampled)}"
        return self._trace

    @property
    def session(self) -> str:
        """The id of the trace, which identifies this rollout in every process."""
        return self.trace[3:35]

    @property
    def sampled(self) -> bool:
        """Whether the spans of this trace are exported (W3C: sampled)."""
        return self._sampled if self._trace is None else bool(int(self._trace[-2:], 16) & 1)

    def next_seed(self, role: str) -> int:
        """The seed of the next call. It has 31 bits, which every server accepts."""
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
    """The context of the current rollout; None outside a rollout."""
    return _open.get()


def rollout_seed(run: int | None, key: str) -> str | None:
    """The seed of a rollout, from the seed of the run and the rollout's key; None without a run's seed."""
    if run is None:
        return None
    return blake2b(f"{run}/{key}".encode(errors="surrogatepass"), digest_size=8).hexdigest()


def seeded(request: Json, role: str = "model") -> Json:
    """The request with the seed of this call, if the rollout has one and the request has none.

    Calls are numbered per role, so that calls of a judge do not change the seeds of the model.
    """
    context = _open.get()
    if context is None or context.seed is None or request.get("seed") is not None:
        return request
    return {**request, "seed": context.next_seed(role)}


def _parse_trace(header: str) -> str | None:
    """The header as version 00, or None if it is invalid. Later versions may have more fields at the end."""
    match = _TRACE.fullmatch(header)
    if match is None or (match[1] == "00" and match[3]):
        return None
    return f"00-{match[2]}"
