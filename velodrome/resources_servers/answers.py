r"""Extract the result of an answer: its last number or line, or the text in `\boxed{…}` or after "Answer:".

The rule: extraction does not depend on the expected answer, so listing many candidates never helps. Only the end of the
text is read, and every step is linear in its length.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

from velodrome.errors import TaskError

TAIL = 20_000  # an answer is at the end; the output of a runaway model before it is not read
MAX_DIGITS = 400
TOLERANCE = Fraction(1, 1_000_000)
NOT_ROUNDED = Fraction(1, 1000)  # the largest difference from a whole number, of any size

DIGITS = r"(?:\d{1,3}(?:,\d{3})++(?!\d)|\d++)"
NUMBER = re.compile(
    rf"(?<![\w.])(?P<sign>(?<![\d)\]])[-−])?\$?"
    rf"(?P<whole>{DIGITS}(?:\.\d++)?|\.\d++)(?:[eE](?P<exponent>[-+]?\d{{1,3}})(?!\d))?"
    rf"(?:\s?/\s?(?P<below>{DIGITS}(?:\.\d++)?))?",
    re.ASCII,
)
LATEX_FRACTION = re.compile(r"\\[dt]?frac\s?\{\s?([-−]?\d{1,40})\s?\}\s?\{\s?(\d{1,40})\s?\}")
LATEX_SPACE = re.compile(r"\\[,!;: ]")
LEAD = re.compile(r"(?i).*\banswer\b(?:\s+is\b)?\s*:?")
MARKUP = " \t*_`\"'$.()"


def last_number(text: str) -> str | None:
    """The last number of a text, as written: `1,081`, `-3.5`, `1/2`, `2e10`."""
    tail = text[-TAIL:]
    if "\\" in tail or "{,}" in tail:
        tail = LATEX_SPACE.sub("", LATEX_FRACTION.sub(r" \1/\2 ", tail.replace("{,}", ",")))
    last_match = None
    for match in NUMBER.finditer(tail):
        last_match = match
    return None if last_match is None else last_match.group().replace("$", "")


@lru_cache(maxsize=4096)
def value_of(text: str) -> Fraction | None:
    """The exact value of a number in a form that `last_number` returns; None for any other text."""
    if text.isdigit() and text.isascii() and len(text) <= MAX_DIGITS:
        return Fraction(int(text))
    match = NUMBER.fullmatch(text.strip())
    if match is None or len(text) > MAX_DIGITS:
        return None
    value = Fraction(match["whole"].replace(",", ""))
    if match["exponent"]:
        value *= Fraction(10) ** int(match["exponent"])
    if match["below"]:
        below = Fraction(match["below"].replace(",", ""))
        if below == 0:
            return None
        value /= below
    return -value if match["sign"] else value


def expected_value(expected: Any) -> Fraction | None:
    """The value of a task's `expected_answer`, which may be a number or text."""
    if isinstance(expected, bool) or not isinstance(expected, int | float | str):
        return None
    return value_of(str(expected))


def same_number(answer: Fraction, expected: Fraction) -> bool:
    """Whether two numbers are equal: whole numbers exactly, others within a millionth of the expected value."""
    if answer.denominator == 1 and expected.denominator == 1:
        return answer == expected
    allowed = TOLERANCE * max(abs(expected), TOLERANCE)
    return abs(answer - expected) <= (min(allowed, NOT_ROUNDED) if expected.denominator == 1 else allowed)


def ends_with(text: str, expected: int | float | str) -> tuple[bool, str | None]:
    """Whether an answer ends with the expected number or text line; also returns the extracted end."""
    expected_number = expected_value(expected)
    if expected_number is not None:
        extracted = last_number(text)
        value = None if extracted is None else value_of(extracted)
        return value is not None and same_number(value, expected_number), extracted
    extracted, expected_text = last_words(text), plain_words(str(expected))
    return extracted is not None and bool(expected_text) and plain_words(extracted) == expected_text, extracted


def last_words(text: str) -> str | None:
    """The last line of an answer; only the part after the word "answer" if it has one."""
    lines = text[-TAIL:].strip().splitlines()
    return LEAD.sub("", lines[-1][-2000:], count=1).strip(MARKUP) if lines else None


def plain_words(text: str) -> str:
    """A text in lower case, without markup, quotes and spaces around commas."""
    return re.sub(r"\s*,\s*", ",", " ".join(text.strip(MARKUP).casefold().split()))


T = TypeVar("T")

SHOWN = 500
BRACES = re.compile(r"\\[{}]|\\f?boxed\s?\{|\{|\}")
LABEL = re.compile(r"(?<![\w-])answer[ \t]{0,3}[*_]{0,3}[ \t]?(?P<sign>is\b|:|=|[-–—](?=\s))[ \t:=*_]*", re.IGNORECASE)
ANSWER_TAG = re.compile(r"<answer>([^<>]{1,2000})</answer>", re.IGNORECASE)
BEFORE = re.compile(r"(?:(?:so|the|my|final|correct|right|therefore|thus|,)\s*)*+", re.IGNORECASE)  # of the next label
TAG = r"(?:system|developer|grader|judge|verifier|admin)"
TAGGED = re.compile(rf"<(?P<tag>{TAG})\b[^<>]{{0,200}}>", re.IGNORECASE)
POSING_LINE = re.compile(rf"^[^\w\n]*+{TAG}\b.*$", re.IGNORECASE | re.MULTILINE)
RAISED = re.compile(r"[⁰¹²³⁴-⁹⁺⁻]+")
HALVES = re.compile(r"[¼-¾⅐-⅞]")
INVISIBLE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
WRAPPING = re.compile(r"\\(?:text|mathrm|mathbf|textbf|mbox|mathit)\s?\{([^{}]*)\}")
EDGES = " \t\r\n*_`\"'“”‘’"


def readable(text: str) -> str:
    """The end of an answer, normalised, without reasoning and without text that poses as another speaker's."""
    tail = unicodedata.normalize("NFKC", HALVES.sub(r" \g<0>", RAISED.sub(_power, text[-TAIL:])))[-TAIL:]
    tail = tail.rpartition("</think>")[2].partition("<|")[0]
    for name in ("<!--", *dict.fromkeys(match.group() for match in TAGGED.finditer(tail))):
        end_mark = "-->" if name == "<!--" else f"</{TAGGED.match(name)['tag']}>"  # type: ignore[index]
        tail = _without(tail, name, end_mark)
    return POSING_LINE.sub("", INVISIBLE.sub("", tail))


def _power(match: re.Match[str]) -> str:
    """`10³` becomes `10^3`; NFKC alone would turn it into 103."""
    return "^" + unicodedata.normalize("NFKC", match.group())


def _without(text: str, start: str, end_mark: str) -> str:
    """Remove each section between these marks; a section without an end mark goes to the end of the text."""
    head, *parts = text.split(start)
    return head + "".join(part.partition(end_mark)[2] for part in parts)


def boxed(text: str) -> list[str]:
    r"""The contents of every closed `\boxed{…}`; of nested boxes, only the innermost."""
    contents, depth = [], 0
    start, outer_depth = None, 0  # where the box begins, and its depth
    for match in BRACES.finditer(text):
        token = match.group()
        if token in ("\\{", "\\}"):
            continue
        if token != "}":
            if "boxed" in token:
                start, outer_depth = match.end(), depth
            depth += 1
        elif depth:
            depth -= 1
            if start is not None and depth == outer_depth:
                contents.append(text[start : match.start()])
                start = None
    return contents


def labelled(text: str) -> list[str]:
    """The text in `<answer>…</answer>`, or else the rest of each line after "Answer:" or "the answer is"."""
    tagged = ANSWER_TAG.findall(text)
    if tagged:
        return tagged
    contents: dict[bool, list[str]] = {True: [], False: []}
    labels = list(LABEL.finditer(text))
    for index, label in enumerate(labels):
        end = labels[index + 1].start() if index + 1 < len(labels) else len(text)
        content = text[label.end() : end].partition("\n")[0]
        if not BEFORE.fullmatch(content.strip(EDGES + ".:")):
            contents[label["sign"].lower() != "is"].append(content)
    return contents[True] or contents[False]


def last_line(text: str) -> list[str]:
    """The last line that is not empty, as a list; empty if there is none."""
    return [line for line in text.splitlines() if line.strip(EDGES + ".")][-1:]


FORMS: Mapping[str, Callable[[str], list[str]]] = {"boxed": boxed, "label": labelled, "last_line": last_line}


def statements(text: str, forms: Sequence[str]) -> list[str]:
    """The statements in the first of these forms that occurs in the text."""
    answer = readable(text)
    for form in forms:
        contents = FORMS[form](answer)
        if contents:
            return [bare(content) for content in contents]
    return []


def bare(content: str) -> str:
    """A statement without the markup and quotes around it and the full stop at its end."""
    content = WRAPPING.sub(r"\1", content).replace("\\(", "").replace("\\)", "").replace("{,}", ",")
    content = content.strip(EDGES).lstrip("# ").strip(EDGES).removesuffix(".").strip(EDGES)
    return content.strip("$" + EDGES) if len(content) > 1 and content[0] == content[-1] == "$" else content


def agreed(values: Sequence[T | None], several: str) -> T | None:
    """The value of an answer's statements. If they disagree: None with `refuse`, else the last."""
    if not values or values[-1] is None:
        return None
    if several == "refuse" and any(value is not None and value != values[-1] for value in values):
        return None
    return values[-1]


def words(text: str) -> str:
    """A text for comparison: case, space, punctuation and a leading article do not count; `C++`, `C#` and `-5` stay."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    without_gaps = "".join(" " if _is_gap(folded, at) else char for at, char in enumerate(folded))
    parts = without_gaps.split()
    return " ".join(parts[1:] if len(parts) > 1 and parts[0] in ("the", "a", "an") else parts)


def _is_gap(text: str, index: int) -> bool:
    char = text[index]
    if char.isalnum():
        return False
    if char == "-" and (index == 0 or not text[index - 1].isalnum()) and text[index + 1 : index + 2].isdigit():
        return False
    return char not in "#%@&" and unicodedata.category(char)[0] in "PZC"


def last_block(text: str, languages: Sequence[str]) -> str | None:
    """The last closed code block in one of these languages; `""` stands for a block without a language."""
    block, language = None, None
    lines: list[str] = []
    for line in text.split("\n"):
        mark = line.strip()
        if mark == "```" and language is not None:
            block, language = "\n".join(lines) + "\n" if language in languages else block, None
        elif mark.startswith("```") and (language is None or mark[3:].strip().lower() in languages):
            language, lines = mark[3:].strip().lower(), []
        elif language is not None:
            lines.append(line)
    return block


def shortened(value: str | None) -> str | None:
    """A text for the score: cut to `SHOWN` characters, with invalid Unicode replaced."""
    return None if value is None else value[:SHOWN].encode(errors="replace").decode()


def need(task: Mapping[str, Any], name: str, kinds: type | tuple[type, ...], description: str) -> Any:
    """A field of the task. Raises a `TaskError` that names the field if it is missing or of another type."""
    value = task.get(name)
    if value is None:
        raise TaskError(f'no "{name}" in the task; it is {description}')
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise TaskError(f'"{name}" must be {description}, not {str(value)[:80]!r}')
    return value
