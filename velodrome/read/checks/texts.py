"""What a text gives away: a refusal, an error in place of an answer, a model that runs in circles.

Bounded lists and bounded looks: a megabyte costs no more than a page.
"""

from __future__ import annotations

import re

import velodrome.read.checks.thresholds as at

_START = 200
_ERRORS = frozenset(("ERROR", "FAILED"))  # as the guide (seed 002) has them
_ERROR_STARTS = ("ERROR:", "FAILED:", "Traceback (most recent call last)")
_TOOL_ERROR = re.compile(
    r'\s*(?:error\b|exception:|failed:|traceback \(most|\{\s*"error"\s*:(?!\s*(?:null|false|""|\[\])))', re.IGNORECASE
)

_SORRY = r"(?:(?:i['’]?m |i am )?(?:very |so |really )?sorry|unfortunately|my apologies|i apologi[sz]e)"
_CANNOT = r"i(?: cannot| can['’]?t|(?:['’]m| am) (?:unable|not able) to| won['’]t| will not)"
_VERBS = (
    "help|assist|comply|fulfill?|provide|support|engage|participate|discuss|share|generate|create|write|produce|"
    "answer that|answer this|do that|do this|continue with"
)
_REFUSAL = re.compile(
    rf"\s*(?:{_SORRY}[,.!]?(?: but)?,? {_CANNOT}\b"
    rf"|(?:as an ai\b[^.]{{0,40}}, )?{_CANNOT} (?:{_VERBS})\b"
    r"|i (?:must|have to) (?:respectfully )?decline\b)",
    re.IGNORECASE,
)
OPENINGS = frozenset("iIsSuUmMaAEFT \n\t")  # of everything that `is_error` and `is_refusal` look for
_TOOL_OPENINGS = frozenset("eEtTfF{ \n")


def is_error(answer: str) -> bool:
    """Whether an answer is none, but the trace of a crash."""
    return answer.startswith(_ERROR_STARTS) or (len(answer) < _START and answer.strip() in _ERRORS)


def is_refusal(answer: str) -> bool:
    """Whether an answer begins as refusals do."""
    return _REFUSAL.match(answer, 0, _START) is not None


def is_tool_error(result: str) -> bool:
    """Whether a tool's result tells of an error."""
    return result[:1] in _TOOL_OPENINGS and _TOOL_ERROR.match(result, 0, _START) is not None


def runs_in_circles(text: str) -> bool:
    """Whether the end of a text says one thing over and over."""
    tail = text[-at.REPETITION_TAIL :]
    if text.rfind(tail, -at.REPETITION_TAIL - at.REPETITION_WINDOW // at.REPETITION_TIMES, -1) < 0:
        return False  # as nearly always, and quickly
    times = text.count(tail, -at.REPETITION_WINDOW)
    if times < at.REPETITION_TIMES:
        return False
    return times >= at.REPETITION_TIMES_PLAIN or sum(map(str.isalpha, tail)) >= at.REPETITION_TAIL // 4
