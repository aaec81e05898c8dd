"""Compare two short answers as text and as numbers, without a library: what `fast_mode` does."""

from __future__ import annotations

import re

from velodrome.resources_servers.answer import TAIL, last_number, same, value_of

LABEL = re.compile(r"answer\s?(?:is|:|=)?[\s:*$]*([^\n]{1,200})", re.IGNORECASE)
WRAPPING = re.compile(r"\\(?:text|mathrm|mathbf|textbf|mbox)\{([^{}]*)\}")
FRACTION = re.compile(r"\\[dt]?frac\{([^{}]+)\}\{([^{}]+)\}")
NOISE = re.compile(r"\\left|\\right|\\[,!;: ]|\$|\s|\\%|%|\{,\}")
TRAILING = re.compile(r"(?:\\circ|\^\{?\\circ\}?|[.,;:!*])+$")


def extract(text: str) -> str | None:
    """The last `\\boxed{…}`, else what follows the last "answer", else the last number."""
    tail = text[-TAIL:]
    boxed = last_boxed(tail)
    if boxed is not None:
        return boxed
    labelled = None
    for match in LABEL.finditer(tail):
        labelled = match.group(1)
    if labelled is not None and len(labelled.split()) <= 3:
        return labelled.strip()
    return last_number(tail)


def last_boxed(text: str) -> str | None:
    """The text between the braces of the last `\\boxed`, nested braces included."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    start += len("\\boxed{")
    depth = 1
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start:at].strip()
    return None


def normal(answer: str) -> str:
    """The answer without what does not change its meaning."""
    bare = WRAPPING.sub(r"\1", answer)
    bare = FRACTION.sub(r"\1/\2", bare)
    return TRAILING.sub("", NOISE.sub("", bare)).lower()


def equal(answer: str, expected: str) -> bool:
    """The same text once it is normalised, or the same number."""
    left, right = normal(answer), normal(expected)
    if left == right:
        return bool(left)
    a, b = value_of(left), value_of(right)
    return a is not None and b is not None and same(a, b)
