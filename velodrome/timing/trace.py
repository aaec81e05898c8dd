"""The trace that is open now, as W3C's `traceparent` header: one id a rollout, the same in every process it reaches.

The id is made when the first call wants it. What a caller sent is passed on as it came: servers export no spans, so the
caller's own span stays the parent of whatever is below. A header that is not valid is as good as none.
"""

from __future__ import annotations

import random
import re
from contextvars import ContextVar, Token
from types import TracebackType

HEADER = "traceparent"

_VALID = re.compile(r"(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?")
_ids = random.Random()  # of its own: a seed that somebody sets must not repeat ids
_open: ContextVar[Trace | None] = ContextVar("velodrome_trace", default=None)


class Trace:
    """A trace, open while it is entered: the one that a header names, else a new one."""

    __slots__ = ("_header", "_recorded", "_token")

    def __init__(self, header: str | None = None, *, recorded: bool = False) -> None:
        self._header = None if header is None else _checked(header)
        self._recorded = recorded

    @property
    def header(self) -> str:
        """The value of the header; every call of this trace sends the same."""
        if self._header is None:
            self._header = (
                f"00-{_ids.getrandbits(128) or 1:032x}-{_ids.getrandbits(64) or 1:016x}-0{int(self._recorded)}"
            )
        return self._header

    @property
    def recorded(self) -> bool:
        """Whether somebody keeps the spans of this trace (W3C: sampled)."""
        return self._recorded if self._header is None else bool(int(self._header[-2:], 16) & 1)

    def __enter__(self) -> Trace:
        self._token: Token[Trace | None] = _open.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _open.reset(self._token)
        del self._token


def header() -> str | None:
    """The header that a call made now carries; None outside of a trace."""
    here = _open.get()
    return None if here is None else here.header


def session() -> str | None:
    """The id of the trace that is open now, which names one rollout in every process; None outside of one."""
    here = _open.get()
    return None if here is None else here.header[3:35]


def recorded() -> bool:
    """Whether somebody keeps the spans of the trace that is open now."""
    here = _open.get()
    return here is not None and here.recorded


def _checked(header: str) -> str | None:
    """A valid header in the version that is known here; later versions may say more at their end."""
    match = _VALID.fullmatch(header)
    if match is None or (match[1] == "00" and match[3]):
        return None
    return f"00-{match[2]}"
