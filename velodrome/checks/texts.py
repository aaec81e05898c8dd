"""Patterns in texts: a refusal, an error in place of an answer, endless repetition.

Only a bounded part of a text is searched, so a megabyte takes no longer than a page.
"""

from __future__ import annotations

import re
from http import HTTPStatus

import velodrome.checks.thresholds as at

_START = 200
_ERRORS = frozenset(("ERROR", "FAILED"))  # as the guide (seed 002) has them
_ERROR_STARTS = ("ERROR:", "FAILED:", "Traceback (most recent call last)")
_NO_ERROR = r'(?!\s*(?:null|false|""|\[\s*\]|\{\s*\}|0\s*[,}]|-?\d*\.\d))'  # an empty error, or a numeric error
_ABOUT_ERRORS = r"(?! (?:handling|messages?|bars?|rates?|analysis|correction|budgets?|logs?|margins?|propagation)\b)"
_STATUS = "|".join(sorted({re.escape(status.phrase) for status in HTTPStatus if status >= 400}))
_CALL = "(?:the )?(?:tool|function|request|command|query|call|execution|api)"
_TOOL_ERROR = re.compile(
    r"\s*(?:"
    + "|".join(
        (
            rf"(?i:error\b{_ABOUT_ERRORS}|exception:|failed:|traceback \(most)",
            r"[A-Za-z_][\w.]{0,80}(?:Error|Exception)\s*[:(]",
            rf"(?i:http(?:/\d(?:\.\d)?)? (?:error |status (?:code )?)?[45]\d\d\s*(?:[:,.(-]|$|{_STATUS}))",
            rf"[45]\d\d(?: Client Error| Server Error)?\s*[:-]?\s*(?i:{_STATUS})\b",
            rf"(?i:{_CALL}(?: \w+){{0,2}} failed(?::| with\b))",
            rf'\{{\s*"error"\s*:{_NO_ERROR}',
            r'\{[^{}]{0,150}?"(?:error(?:_message)?"\s*:\s*"[^"\W\d_]|is_?[eE]rror"\s*:\s*true)',
            r'\{[^{}]{0,150}?"status"\s*:\s*"(?:error|failed)"',
        )
    )
    + ")"
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
_OPENINGS = frozenset("iIsSuUmMaA \n\t")
_ERROR_OPENINGS = frozenset("EFT \n\t")
_TOOL_OPENINGS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_45{ \n")


def is_error(answer: str) -> bool:
    """Whether an answer is the trace of a crash."""
    return answer[:1] in _ERROR_OPENINGS and (
        answer.startswith(_ERROR_STARTS) or (len(answer) < _START and answer.strip() in _ERRORS)
    )


def is_refusal(answer: str) -> bool:
    return answer[:1] in _OPENINGS and _REFUSAL.match(answer, 0, _START) is not None


def is_tool_error(result: str) -> bool:
    return result[:1] in _TOOL_OPENINGS and _TOOL_ERROR.match(result, 0, _START) is not None


def runs_in_circles(text: str) -> bool:
    """Whether the end of a text repeats the same words many times."""
    tail = text[-at.REPETITION_TAIL :]
    if text.rfind(tail, -at.REPETITION_TAIL - at.PARAGRAPH_LONGEST, -1) < 0:
        return False  # the usual case, and a fast test
    times = text.count(tail, -at.REPETITION_WINDOW)
    if times >= at.REPETITION_TIMES_PLAIN:
        return True
    letters = sum(map(str.isalpha, tail)) >= at.REPETITION_TAIL // 4
    return letters and (times >= at.REPETITION_TIMES or _says_a_paragraph_again(text))


def _says_a_paragraph_again(text: str) -> bool:
    """Whether a text ends in a paragraph that is repeated before it at similar distances."""
    tail = text[-at.PARAGRAPH_TAIL :]
    before = text.rfind(tail, -at.PARAGRAPH_TAIL - at.PARAGRAPH_LONGEST, -1)
    distance = len(text) - at.PARAGRAPH_TAIL - before
    return before >= 0 and text.count(tail, -(at.PARAGRAPH_TIMES + 1) * distance) >= at.PARAGRAPH_TIMES
