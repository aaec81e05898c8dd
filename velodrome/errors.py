"""Every error this package raises, on one page.

VelodromeError
├── InputError         a file, flag or config the user gave is wrong; may carry many lines
├── StorageError       the disk refused a write; what was finished before is safe
│   └── ChangedError   another program changed a file while it was written to
├── ServerError        a server did not start, or went away
├── TrainError         training cannot go on; the last checkpoint is good
├── CallError          one HTTP call got no usable answer; whoever made it says whose fault that is
└── RolloutError       one rollout failed: recorded with its boundary, never fatal
    ├── ModelError · ToolError · VerifyError · AgentError · TaskError

`blame` is the only place where any exception at all is caught: it turns what foreign
code raised into the error of the boundary it happened behind.
"""

from __future__ import annotations

from contextlib import ContextDecorator
from types import TracebackType
from typing import Any, ClassVar, Literal, NamedTuple

Boundary = Literal["model", "tool", "verify", "agent", "input"]


class VelodromeError(Exception):
    """The root: everything this package raises on purpose."""


class InputError(VelodromeError):
    """A mistake in what the user gave. One line a problem: where, what, the way out."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StorageError(VelodromeError):
    """The disk refused a write. Rollouts written before it are whole."""


class ChangedError(StorageError):
    """Another program removed, replaced, cut or overwrote a file while it was written to."""


class ServerError(VelodromeError):
    """A server did not start, or went away."""


class TrainError(VelodromeError):
    """Training cannot go on: a loss that is no number. The last checkpoint is good."""


class Away(NamedTuple):
    """A server that did not answer: its address, whether the call was sent, and whether it was called from here."""

    address: str
    sent: bool = False
    near: bool = True


class CallError(VelodromeError):
    """A call that got no usable answer. `status` is None if there was none; `excerpt` is one safe line of the body.

    `away` is the server, if it could not be reached or the connection was lost.
    """

    def __init__(
        self, message: str, *, status: int | None = None, excerpt: str = "", body: bytes = b"", away: Away | None = None
    ) -> None:
        super().__init__(message)
        self.away = away
        self.status = status
        self.excerpt = excerpt
        self.body = body


class RolloutError(VelodromeError):
    """One rollout failed. `partial` is the conversation so far, as response items.

    `spans` says where its time went, if a server told. `away` is the server that could not be reached, if that is why.
    """

    boundary: ClassVar[Boundary] = "agent"

    def __init__(self, message: str, *, partial: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.partial = partial
        self.spans: str | None = None
        self._away: Away | None = None

    @property
    def away(self) -> Away | None:
        """As a server reported it, else as the call that caused this error met it."""
        return self._away or (self.__cause__.away if isinstance(self.__cause__, CallError) else None)

    @away.setter
    def away(self, away: Away | None) -> None:
        self._away = away


class ModelError(RolloutError):
    """The model server answered with an error, garbage, or not at all."""

    boundary = "model"

    def __init__(self, message: str, *, status: int | None = None, partial: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message, partial=partial)
        self.status = status


class ToolError(RolloutError):
    """A tool's own code failed in a way the model cannot be told about."""

    boundary = "tool"


class VerifyError(RolloutError):
    """The verifier raised, hung, or returned something that is not a score."""

    boundary = "verify"


class AgentError(RolloutError):
    """The agent itself failed, or ran out of its time."""

    boundary = "agent"


class TaskError(RolloutError):
    """The task row turned out to be unusable while it was being run."""

    boundary = "input"


def describe(error: BaseException) -> str:
    """One line that names the error: its type, and its text where it has one."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return f"{name}: {text}" if text else name


class blame(ContextDecorator):
    """Charge whatever foreign code raises in this block, or in this function, to one boundary.

    An error that is ours already passes through; so do cancellation and interrupts, which are nobody's fault. A class
    and not a generator: it stands several times in every rollout.
    """

    def __init__(self, kind: type[RolloutError] | type[InputError], what: str) -> None:
        self._kind = kind
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, VelodromeError):
            raise self._kind(f"{self._what}: {describe(error)}") from error
