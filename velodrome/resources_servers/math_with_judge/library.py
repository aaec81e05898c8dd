"""math-verify, in worker processes.

An answer of a model can keep sympy busy for ever, so the library never runs in the loop's process. CPU time decides
whether an answer takes too long, so that a busy machine gives the same scores as an idle one. Wall time only ends a
hang: exceeding it is a failure, never a score.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import signal
from dataclasses import dataclass

from velodrome.errors import RolloutError, VerifyError
from velodrome.http.limiter import Limiter
from velodrome.resources_servers.code_workers import CodeWorkers, WorkerEnded, make_copy
from velodrome.threads import NoAnswer
from velodrome.timing import elsewhere
from velodrome.timing.spans import span

_MEMORY_MB = 4096
_MAX_EXTRACTED_CHARS = 500
_CALLS_PER_PROCESS = 1_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """The library's verdict on one answer, and the answer that it extracted."""

    right: bool
    extracted: str | None


class LibraryTimeout(VerifyError):
    """The library used up its CPU time on this answer."""


class LibraryProcess:
    """Created once in each worker process. The kernel ends the process if an answer takes too much CPU time."""

    def __init__(self, cpu_s: float) -> None:
        self._cpu_s = cpu_s
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        with contextlib.suppress(ValueError, OSError):  # a lower limit is already set, or the system has no limits
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MB << 20, _MEMORY_MB << 20))
        logging.disable(logging.CRITICAL)
        compare("1", r"\boxed{1}")  # imports everything before the first timer starts

    async def check(self, _: str, expected: str, text: str) -> Verdict:
        """The library's verdict on one answer."""
        signal.setitimer(signal.ITIMER_PROF, self._cpu_s)
        try:
            return compare(expected, text)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    async def aclose(self) -> None:
        """Nothing to free."""


def compare(expected: str, text: str) -> Verdict:
    """Whether the answer at the end of a text equals the expected one, by math-verify."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    kinds = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    gold = parse(expected if "$" in expected else f"${expected}$", kinds, parsing_timeout=None)
    parsed = parse(text, kinds, parsing_timeout=None)
    right = verify(gold, parsed, timeout_seconds=None)
    return Verdict(bool(right), str(parsed[-1])[:_MAX_EXTRACTED_CHARS] if parsed else None)


class Library:
    """Up to `size` processes, started when needed."""

    def __init__(self, size: int, cpu_s: float, wall_s: float) -> None:
        self._cpu_s = cpu_s
        self._wall_s = wall_s
        self._limiter = Limiter("library", size, "verify_processes", divided=True)
        copy = make_copy(LibraryProcess, {"cpu_s": cpu_s})
        self._workers = CodeWorkers(copy, size, _MEMORY_MB, _CALLS_PER_PROCESS)

    async def check(self, expected: str, text: str) -> Verdict:
        """Whether the answer at the end of `text` equals the expected one."""
        try:
            with span("library"):
                async with self._limiter:
                    verdict: Verdict = await self._workers.ask("check", (expected, text), self._wall_s)
                    return verdict
        except NoAnswer:
            raise VerifyError(
                f"math-verify: no answer within library_wall_timeout_s={self._wall_s:g}; its CPU time was not used up:"
                " the machine is overloaded or the process was stopped"
            ) from None
        except WorkerEnded as error:
            if signal.SIGPROF.name not in str(error):
                raise VerifyError(f"math-verify: {error}") from error
            elsewhere.charge(self._cpu_s)
            text = f"math-verify: no answer within library_timeout_s={self._cpu_s:g} of CPU time"
            raise LibraryTimeout(text) from None
        except RolloutError as error:  # what the library raised
            raise VerifyError(f"math-verify: {error}") from error

    async def aclose(self) -> None:
        await self._workers.aclose()
