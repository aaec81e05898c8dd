"""The filter language: `reward<1 tools>3 0<pass_rate<1 error:timeout -agent:x "some text"`. All terms must hold.

Parsing does not depend on a file. Whether a field exists is checked where the filter is used, and the error has its
place in the filter. User input never becomes SQL.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

from velodrome.errors import InputError
from velodrome.index.answer_types import ANY, STATES
from velodrome.index.fields import OWN_NAMES, TEXT_FIELDS, FieldNames
from velodrome.settings.names import hint
from velodrome.timing.invisible import INVISIBLE

NONE = "none"  # `reward:none`: without a value

_MOST_CHARACTERS = 2000
_MOST_TERMS = 32
_OP = "<=|>=|!=|==|<|>|=|:"
_STRING = r'"(?:[^"\\]|\\.)*"'
_WORD = r'[^\s"<>=!:]+'
_TERM = re.compile(  # a value, or two or three with operators between them; a text may have colons: error:POST:http
    rf"""\s*(?P<minus>-(?="))?(?P<first>{_STRING}|{_WORD})
    (?P<gap>\s*)(?:(?P<op>{_OP})(?P<space>\s*)(?P<second>{_STRING}|{_WORD}(?::(?:{_WORD})?)*)?
    (?:\s*(?P<op2>{_OP})\s*(?P<third>{_STRING}|{_WORD})?)?)?""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_BY_CODE = r"\\u\{(?P<code>[0-9a-fA-F]{1,6})\}"  # a character that cannot be typed or seen, quoted or not
_MATCHES = (":", "=", "==", "!=")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


@dataclass(frozen=True, slots=True)
class Compared:
    """A number of a rollout compared with one or two bounds. Without bounds: the number is missing."""

    field: str
    bounds: tuple[tuple[str, float], ...]
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class Matched:
    """A field whose text contains `value` (`:`), equals it (`=`) or does not (`!=`), or has any value (`*`).

    For a field that is a number, the value must be a number, and is equal or not.
    """

    field: str
    op: str
    value: str
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class Words:
    """A phrase in a searched text. `prefix`: its last word may be the start of a longer word."""

    words: str
    prefix: bool
    negated: bool
    at: int


Term = Compared | Matched | Words


def as_number(term: Matched) -> Compared | None:
    """The term as a comparison of numbers; None if its value is not a number."""
    if term.op == ANY:
        return Compared(term.field, (), not term.negated, term.at)
    if term.op == ":" and term.value.lower() == NONE:
        return Compared(term.field, (), term.negated, term.at)
    if not _NUMBER.fullmatch(term.value) or not isfinite(float(term.value)):
        return None
    return Compared(term.field, ((term.op.replace(":", "="), float(term.value)),), term.negated, term.at)


def _field_problem(term: Compared | Matched, known: FieldNames) -> str | None:
    """The problem with the field of a term, or None."""
    name = term.field
    is_number, is_text = name in known.numbers, name in known.texts
    if not (is_number or is_text):
        quotes = " (put text to search for in quotes)" if isinstance(term, Matched) and term.op == ":" else ""
        return f'no field "{name:.60}"{hint(name, [*known.numbers, *known.texts])}{quotes}'
    if isinstance(term, Compared) and not is_number:
        return f'"{name:.60}" is a text: {name:.60}:part, {name:.60}=whole or {name:.60}!=whole'
    if isinstance(term, Matched) and not is_text and as_number(term) is None:
        return f'"{name:.60}" is a number, and "{term.value:.60}" is not one'
    choices = known.choices.get(name, ())
    if isinstance(term, Matched) and choices and not any(term.value.lower() in choice for choice in choices):
        return f'no {name} "{term.value:.60}"{hint(term.value, choices)}'
    return None


@dataclass(frozen=True, slots=True)
class Query:
    """The conditions on a rollout. Without terms, every rollout matches."""

    terms: tuple[Term, ...] = ()
    text: str = ""

    @staticmethod
    def parse(text: str, fields: FieldNames | None = None) -> Query:
        """Parse a filter. With `fields`, names that are not among them are refused."""
        if len(text) > _MOST_CHARACTERS:
            raise InputError(f"filter: longer than {_MOST_CHARACTERS} characters")
        terms = tuple(_terms(text))
        if len(terms) > _MOST_TERMS:
            raise InputError(f"filter: more than {_MOST_TERMS} terms")
        query = Query(terms, text.strip())
        if fields is not None:
            query.check(fields)
        return query

    def check(self, fields: FieldNames) -> None:
        """Refuse unknown fields, and conditions that the kind of a field does not allow."""
        known = OWN_NAMES | fields
        for term in self.terms:
            if not isinstance(term, Words) and (problem := _field_problem(term, known)):
                raise InputError(f"filter, at {term.at}: {problem}")

    @property
    def words(self) -> tuple[Words, ...]:
        """The terms for the full-text search."""
        return tuple(term for term in self.terms if isinstance(term, Words))


@dataclass(frozen=True, slots=True)
class Sort:
    """The order of a list: by one field, then by `number`. Rollouts without the field come last."""

    field: str = "number"
    descending: bool = False

    @staticmethod
    def parse(text: str) -> Sort:
        """Parse `reward` or `-total_s`. An empty text is the order of the file."""
        name = _decoded(text.strip())
        descending = name.startswith("-")
        name = name[1:].strip() if descending else name
        if descending and not name:
            raise InputError('sort: nothing after "-"; sort by a field, such as reward or -total_s')
        return Sort(name or "number", descending)

    def __str__(self) -> str:
        return f"-{self.field}" if self.descending else self.field


def _terms(text: str) -> Iterator[Term]:
    at = 0
    while text[at:].strip():
        match = _TERM.match(text, at)
        if match is None:
            raise _syntax_error(text, at, "a field must come before {}")
        term, at = _term(text, match)
        yield term


def _term(text: str, match: re.Match[str]) -> tuple[Term, int]:
    """A term, and its end in the text."""
    first, at, negated = match["first"], match.start("first"), match["minus"] is not None
    compared = match["op"] is not None and not (first[0] == '"' and match["gap"])
    if first[0] == "-" and not (compared and _NUMBER.fullmatch(first)):
        first, at, negated = first[1:], at + 1, True
        if not first:
            raise _error(at - 1, 'nothing after "-"')
    if not compared:
        return _words(first, at, negated), match.end("first")
    if match["second"] is None:
        if text[match.end("op") :].strip():
            raise _syntax_error(text, match.end("op"), "{} is not allowed here")
        raise _error(match.start("op"), f'nothing after "{match["op"]}"')
    if _NUMBER.fullmatch(first):
        return _bound_first(match, first, negated), match.end()
    if match["op2"]:
        raise _error(match.start("op2"), "write the field between two bounds: 0 < reward < 1")
    return _compared(match, _unquoted(first), at, negated), match.end()


def _compared(match: re.Match[str], field: str, at: int, negated: bool) -> Term:
    """`reward<1`, `error:timeout`, `reward:none`."""
    op, value, place = _plain(match["op"]), match["second"], match.start("second")
    is_number = field in OWN_NAMES.numbers  # a number in every file
    if is_number or (field not in TEXT_FIELDS and op not in _MATCHES):
        if op != ":":
            return Compared(field, ((op, _number(value, place)),), negated, at + 1)
    elif op not in _MATCHES:
        raise _error(match.start("op"), f'"{field}" is a text: {field}:part, {field}=whole or {field}!=whole')
    if op == ":" and match["space"]:
        raise _error(match.start("op"), f'nothing after "{field:.60}:" (put a text with spaces in quotes)')
    text = _unquoted(value)
    if op == ":" and value == ANY:
        term = Matched(field, ANY, "", negated, at + 1)
    elif field == "state" and text not in STATES:
        raise _error(place, f'no state "{text:.60}"{hint(text, STATES)} ({", ".join(STATES)})')
    else:
        term = Matched(field, op, text, negated, at + 1)
    if not is_number:
        return term
    if (numeric := as_number(term)) is None:
        raise _error(at, f'"{field}" is a number, and "{text:.60}" is not one')
    return numeric


def _bound_first(match: re.Match[str], number: str, negated: bool) -> Term:
    """`0 < reward` and `0 < reward < 1`."""
    op, name, place = match["op"], match["second"], match.start("second")
    if op == ":" or _NUMBER.fullmatch(name) or name in TEXT_FIELDS:
        raise _error(place, f'a numeric field must come after "{op}"')
    if ":" in (name if name[0] != '"' else match["op2"] or ""):
        raise _error(place + name.find(":"), '":" is not allowed here')
    bounds = [(_MIRRORED[_plain(op)], _number(number, match.start("first")))]
    if match["op2"]:
        if match["third"] is None:
            raise _error(match.start("op2"), f'nothing after "{match["op2"]}"')
        if match["op2"] == ":":
            raise _error(match.start("op2"), '":" is not allowed here')
        bounds.append((_plain(match["op2"]), _number(match["third"], match.start("third"))))
    return Compared(_unquoted(name), tuple(bounds), negated, place + 1)


def _plain(op: str) -> str:
    return "=" if op == "==" else op


def typed(text: str) -> str:
    """The filter with `\\u{…}` for invisible characters, so that it can be shown and typed."""
    return INVISIBLE.sub(lambda match: "".join(f"\\u{{{ord(each):x}}}" for each in match.group()), text)


def _unquoted(text: str) -> str:
    if text[:1] == '"':
        return re.sub(rf"{_BY_CODE}|\\(?P<quoted>.)", _unescaped, text[1:-1], flags=re.S)
    return _decoded(text)


def _decoded(text: str) -> str:
    return re.sub(_BY_CODE, _unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    """The character that an escape stands for. An invalid code point stays as typed."""
    if match["code"] is None:
        return match["quoted"]
    code = int(match["code"], 16)
    return chr(code) if code <= sys.maxunicode and not 0xD800 <= code < 0xE000 else match[0]


def _number(text: str, at: int) -> float:
    text = _unquoted(text)
    if not _NUMBER.fullmatch(text) or not isfinite(float(text)):
        raise _error(at, f'"{text:.60}" is not a number')
    return float(text)


def _words(text: str, at: int, negated: bool) -> Words:
    text = _unquoted(text)
    words = text.rstrip("*")
    if not any(letter.isalnum() for letter in words):
        raise _error(at, f"there is no word to search for in {text:.60}")
    return Words(words, text.endswith("*"), negated, at + 1)


def _syntax_error(text: str, at: int, what: str) -> InputError:
    """The error for a place where no value begins."""
    at += len(text[at:]) - len(text[at:].lstrip())
    op = re.match(_OP, text[at:])
    if op is not None:
        return _error(at, what.format(f'"{op.group()}"'))
    unclear = f'"{text[at]}" is not understood here (put text to search for in quotes)'
    return _error(at, "a quote is not closed" if text[at] == '"' else unclear)


def _error(at: int, what: str) -> InputError:
    return InputError(f"filter, at {at + 1}: {what}")
