"""Every error this package raises, on one page.

VelodromeError
├── InputError         a file, flag or config of the user is wrong; may carry many lines
├── StorageError       the disk refused a write; what was finished before is safe
│   └── ChangedError   another program changed a file while it was written to
├── ServerError        a server did not start, or went away
├── MetricError        a run has no such metric, for example because every rollout failed
├── TrainError         training cannot continue; the last checkpoint is good
├── SandboxEnded       the program in a sandbox, or the sandbox itself, is gone
├── CallError          one HTTP call got no usable answer; its caller decides which boundary to blame
└── RolloutError       one rollout failed: recorded with its boundary, never fatal
    ├── ModelError · ToolError · VerifyError · AgentError · TaskError

`blame` is the only place that catches any exception: it converts an exception of foreign code
to the error of its boundary, with the line of that code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from types import CodeType, TracebackType
from typing import Any, ClassVar, Literal, NamedTuple

Boundary = Literal["model", "tool", "verify", "agent", "input"]

_SETUP = re.compile(
    r"model_not_found|insufficient_quota|invalid_api_key|(invalid|unknown|no such) model\b|not a valid model"
    r"|model\b.{0,200}not (exist|found)",
    re.IGNORECASE,
)
_REFUSALS = (401, 402, 403, 404)
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_COMPONENTS = ("responses_api_models", "resources_servers", "responses_api_agents", "environments")
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class VelodromeError(Exception):
    """The root: everything this package raises on purpose."""


class InputError(VelodromeError):
    """A mistake in the user's input. One line per problem: where, what, the way out."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StorageError(VelodromeError):
    """The disk refused a write. Rollouts written before it are whole."""


class ChangedError(StorageError):
    """Another program removed, replaced, cut or overwrote a file while it was written to."""


class ServerError(VelodromeError):
    """A server did not start, or went away."""


class MetricError(VelodromeError, KeyError):
    """A run has no metric of this name; if no rollout was kept, the message says why."""

    __str__ = Exception.__str__  # KeyError's would quote it


class TrainError(VelodromeError):
    """Training cannot continue: the loss is not a number. The last checkpoint is good."""


class SandboxEnded(VelodromeError):
    """The program in a sandbox, or the sandbox itself, is gone. `ran` is the report of its run."""

    def __init__(self, message: str, ran: Any) -> None:
        super().__init__(message)
        self.ran = ran
        self.stopped: str = ran.stopped


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

    @property
    def refused(self) -> bool:
        """Whether any other call would be refused, too: a wrong key, no rights, no money, an unknown model."""
        if self.status is None or not 400 <= self.status < 500:
            return False
        return self.status in _REFUSALS or bool(_SETUP.search(self.excerpt))


class RolloutError(VelodromeError):
    """One rollout failed. `partial` is the conversation so far, as response items.

    `spans` says where its time went, if a server reported it. `away` is the server that could not be reached, if that
    is the reason. `refused`: a server refused a call as it would any other (`CallError.refused`). `place` is the line
    of code at fault, if there is one.
    """

    boundary: ClassVar[Boundary] = "agent"

    def __init__(self, message: str, *, partial: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.partial = partial
        self.spans: str | None = None
        self.place: str | None = None
        self._away: Away | None = None
        self._refused = False

    @property
    def refused(self) -> bool:
        """As a server reported it, else as the call that caused this error met it."""
        return self._refused or (isinstance(self.__cause__, CallError | RolloutError) and self.__cause__.refused)

    @refused.setter
    def refused(self, refused: bool) -> None:
        self._refused = refused

    @property
    def away(self) -> Away | None:
        """As a server reported it, else as the call that caused this error met it."""
        return self._away or (self.__cause__.away if isinstance(self.__cause__, CallError) else None)

    @away.setter
    def away(self, away: Away | None) -> None:
        self._away = away


class ModelError(RolloutError):
    """The model server answered with an error, garbage, or not at all. `tokens` is what an unusable answer cost."""

    boundary = "model"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        partial: list[dict[str, Any]] | None = None,
        tokens: int = 0,
    ) -> None:
        super().__init__(message, partial=partial)
        self.status = status
        self.tokens = tokens
        self.refused = status in _REFUSALS


class ToolError(RolloutError):
    """A tool's own code failed; the model is not shown the error."""

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


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Import packages of an extra in this block. A missing package is an `InputError` with the way to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == __package__:
            raise
        message = f'{what} needs the package "{error.name}": pip install "{__package__}[{extra}]"'
        raise InputError(message) from error


def describe(error: BaseException) -> str:
    """The type and the text of an error in one line."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def place_of(error: BaseException, *, anywhere: bool = True) -> str | None:
    """`file:line in function` of the code that raised: the innermost line of the user's own.

    Without the user's code it is the innermost line of a library or of a component that ships with Velodrome, if
    `anywhere`. A line inside Velodrome that failed on bad data would explain nothing.
    """
    if isinstance(error, SyntaxError) and error.filename and is_own(error.filename):
        return f"{_shown_path(error.filename)}:{error.lineno or 1}"
    innermost = None
    cause: BaseException | None = error
    while cause is not None:
        for code, line in reversed(list(_lines(cause))):
            if is_own(code.co_filename):
                return _place(code, line)
            if innermost is None and not _is_machinery(code.co_filename):
                innermost = _place(code, line)
        cause = cause.__cause__
    return innermost if anywhere else None


def defined_at(function: Callable[..., Any], *, own: bool = False) -> str | None:
    """`file:line in function` of a function: the place of a wrong result, which is not an exception.

    With `own`, only for the user's functions: a line of a shipped model would not explain a server's answer.
    """
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if code is None or (own and not is_own(code.co_filename)):
        return None
    return _place(code, code.co_firstlineno)


def _lines(error: BaseException) -> Iterator[tuple[CodeType, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code, trace.tb_lineno
        trace = trace.tb_next


def is_own(path: str) -> bool:
    """Whether a file is the user's: not Velodrome's, Python's or an installed package's."""
    if path.startswith("<"):
        return False
    full = os.path.abspath(path)
    return not full.startswith((_HERE, _STANDARD)) and not any(folder in full for folder in _INSTALLED)


def _is_machinery(path: str) -> bool:
    """Whether a file is Velodrome's, but not a component's such as `resources_servers/calculator/app.py`."""
    parts = os.path.abspath(path).removeprefix(_HERE).split(os.sep)
    return path.startswith("<") or (path.startswith(_HERE) and not (parts[0] in _COMPONENTS and len(parts) > 2))


def _place(code: CodeType, line: int) -> str:
    return f"{_shown_path(code.co_filename)}:{line} in {code.co_qualname}"


def _shown_path(path: str) -> str:
    """The path relative to the working directory, if the file is below it."""
    full, base = os.path.abspath(path), os.path.abspath(os.curdir) + os.sep
    return full.removeprefix(base)


class blame(ContextDecorator):
    """Convert exceptions of foreign code in this block, or in this function, to the error of one boundary.

    `SystemExit` is converted, too: foreign code must not end the process. A Velodrome error passes through, with its
    place if the user's code raised it; so do cancellation and interrupts.
    A class, because a generator would be slower, and every rollout enters it several times.
    """

    def __init__(self, kind: type[RolloutError] | type[InputError], what: str) -> None:
        self._kind = kind
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        if isinstance(error, RolloutError):
            error.place = error.place or _raised_at(error)
        elif isinstance(error, Exception | SystemExit) and not isinstance(error, VelodromeError):
            raise self._converted(error) from error

    def _converted(self, error: Exception | SystemExit) -> VelodromeError:
        text = f"{self._what}: {describe(error)}"
        if issubclass(self._kind, InputError):
            place = place_of(error, anywhere=False)
            if place is not None and isinstance(error, SyntaxError):
                text = f"{self._what}: SyntaxError: {error.msg}"  # its own text has the place as well
            return self._kind(text if place is None else f"{text} ({place})")
        converted = self._kind(text)
        # An answer of a model can break Velodrome's code: that line would explain nothing.
        converted.place = place_of(error, anywhere=self._kind is not ModelError)
        return converted


def _raised_at(error: RolloutError) -> str | None:
    """The line that raised a Velodrome error, if it is in the user's code."""
    lines = list(_lines(error))
    return _place(*lines[-1]) if lines and is_own(lines[-1][0].co_filename) else None


class result_of:
    """Sets the place of an error about a wrong result to the function that returned it."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, RolloutError):
            error.place = defined_at(self._function)
