"""The filter language: `reward<1 tools>3 0<pass_rate<1 error:timeout -agent:x "some text"`. All terms must hold.

Parsing knows nothing of a file: whether a field exists is checked where the filter is used, and reported with the place
it stands in. User input never becomes SQL.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from velodrome.errors import InputError
from velodrome.index.answer_types import ANY, STATES
from velodrome.index.fields import OWN_NAMES, TEXT_FIELDS, FieldNames
from velodrome.settings.names import hint
from velodrome.timing.invisible import INVISIBLE

NONE = "none"  # `reward:none`: there is no value

_MOST_CHARACTERS = 2000
_MOST_TERMS = 32
_TOKEN = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<op><=|>=|!=|==|<|>|=|:)|(?P<word>[^\s"<>=!:]+)|(?P<bad>\S))'
)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_BY_CODE = r"\\u\{([0-9a-fA-F]{1,6})\}"  # a character that cannot be typed or seen, within quotes or not
_MATCHES = (":", "=", "==", "!=")
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


@dataclass(frozen=True, slots=True)
class Compared:
    """A number of a rollout against one or two bounds; no bounds: there is no such number."""

    field: str
    bounds: tuple[tuple[str, float], ...]
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class Matched:
    """A field of a rollout: its text holds `value`, or is (`=`) or is not (`!=`) just that; `*`: there is a value.

    Of a field that is a number the value is one too, and equal or not.
    """

    field: str
    op: str
    value: str
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class Words:
    """Words that stand next to each other in a prompt or an answer. `prefix`: the last is the start of a word."""

    words: str
    prefix: bool
    negated: bool
    at: int


Term = Compared | Matched | Words


def as_number(term: Matched) -> Compared | None:
    """What a term means for a field that is a number; None if its value is not one."""
    if term.op == ANY:
        return Compared(term.field, (), not term.negated, term.at)
    if term.op == ":" and term.value.lower() == NONE:
        return Compared(term.field, (), term.negated, term.at)
    if not _NUMBER.fullmatch(term.value) or not isfinite(float(term.value)):
        return None
    return Compared(term.field, ((term.op.replace(":", "="), float(term.value)),), term.negated, term.at)


def _misfit(term: Compared | Matched, known: FieldNames) -> str | None:
    """What is wrong with the field of a term, if anything."""
    name = term.field
    number, text = name in known.numbers, name in known.texts
    if not (number or text):
        quotes = " (put text to search for in quotes)" if isinstance(term, Matched) and term.op == ":" else ""
        return f'no field "{name:.60}"{hint(name, [*known.numbers, *known.texts])}{quotes}'
    if isinstance(term, Compared) and not number:
        return f'"{name:.60}" is a text: {name:.60}:part, {name:.60}=whole or {name:.60}!=whole'
    if isinstance(term, Matched) and not text and as_number(term) is None:
        return f'"{name:.60}" is a number, and "{term.value:.60}" is not one'
    choices = known.choices.get(name, ())
    if isinstance(term, Matched) and choices and not any(term.value.lower() in choice for choice in choices):
        return f'no {name} "{term.value:.60}"{hint(term.value, choices)}'
    return None


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Query:
    """What must hold of a rollout. Without terms every one is meant."""

    terms: tuple[Term, ...] = ()
    text: str = ""

    @staticmethod
    def parse(text: str, fields: FieldNames | None = None) -> Query:
        """The filter a person typed. With `fields`, those there are, unknown names are refused at once."""
        if len(text) > _MOST_CHARACTERS:
            raise InputError(f"filter: longer than {_MOST_CHARACTERS} characters")
        terms = tuple(_Parser(text).terms())
        if len(terms) > _MOST_TERMS:
            raise InputError(f"filter: more than {_MOST_TERMS} terms")
        query = Query(terms, text.strip())
        if fields is not None:
            query.check(fields)
        return query

    def check(self, fields: FieldNames) -> None:
        """Refuse fields that are not among these, and what their kind does not allow."""
        known = OWN_NAMES | fields
        for term in self.terms:
            if not isinstance(term, Words) and (problem := _misfit(term, known)):
                raise InputError(f"filter, at {term.at}: {problem}")

    @property
    def words(self) -> tuple[Words, ...]:
        """The terms that texts must be searched for."""
        return tuple(term for term in self.terms if isinstance(term, Words))


@dataclass(frozen=True, slots=True)
class Sort:
    """The order of a list: by one field, equals by `number` the same way. Rollouts without it come last."""

    field: str = "number"
    descending: bool = False

    @staticmethod
    def parse(text: str) -> Sort:
        """`reward`, `-total_s`; nothing: as in the file."""
        name = _decoded(text.strip())
        descending = name.startswith("-")
        name = name[1:].strip() if descending else name
        if descending and not name:
            raise InputError('sort: nothing after "-"; sort by a field, such as reward or -total_s')
        return Sort(name or "number", descending)

    def __str__(self) -> str:
        return f"-{self.field}" if self.descending else self.field


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [
            _Token(str(match.lastgroup), match[match.lastgroup or 0], match.start(match.lastgroup or 0), match.end())
            for match in _TOKEN.finditer(text)
            if match.lastgroup
        ]
        self._tokens += [_Token("end", "", len(text), len(text))] * 2
        self._at = 0

    def terms(self) -> Iterable[Term]:
        while self._peek().kind != "end":
            yield self._term()

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[self._at + ahead]

    def _take(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _term(self) -> Term:
        first = self._take()
        follower = self._peek()
        compared = follower.kind == "op"
        negated = first.kind == "word" and first.text.startswith("-")
        if negated and not (compared and _NUMBER.fullmatch(first.text)):
            rest = first._replace(text=first.text[1:], start=first.start + 1)
            if rest.text:
                first = rest
            elif follower.start == first.end and follower.kind == "string":
                first = self._take()
                compared = self._peek().kind == "op"
            else:
                raise _wrong(first, 'nothing after "-"')
        else:
            negated = False
        if first.kind == "op":
            raise _wrong(first, f'a field must come before "{first.text}"')
        if first.kind == "bad":
            unclear = f'"{first.text}" is not understood here (put text to search for in quotes)'
            raise _wrong(first, "a quote is not closed" if first.text == '"' else unclear)
        if not compared or (first.kind == "string" and self._peek().start != first.end):
            return _words(first, negated)
        if _NUMBER.fullmatch(first.text):
            return self._turned(first, negated)
        return self._compared(first, negated)

    def _compared(self, name: _Token, negated: bool) -> Term:
        op = self._take()
        field = _unquoted(name)
        if field not in OWN_NAMES.numbers and (field in TEXT_FIELDS or op.text in _MATCHES):
            return self._matched(name, op, negated)
        if op.text == ":":
            return self._matched_number(name, op, negated)
        number = _number(self._value(op))
        following = self._peek()
        if following.kind == "op":
            raise _wrong(following, "write the field between two bounds: 0 < reward < 1")
        return Compared(field, ((_plain(op.text), number),), negated, name.start + 1)

    def _turned(self, number: _Token, negated: bool) -> Term:
        """`0 < reward` and `0 < reward < 1`."""
        op = self._take()
        name = self._value(op)
        if op.text == ":" or _NUMBER.fullmatch(name.text) or name.text in TEXT_FIELDS:
            raise _wrong(name, f'a numeric field must come after "{op.text}"')
        bounds = [(_TURNED[_plain(op.text)], _number(number))]
        following = self._peek()
        if following.kind == "op":
            self._take()
            if following.text == ":":
                raise _wrong(following, '":" is not allowed here')
            bounds.append((_plain(following.text), _number(self._value(following))))
        return Compared(_unquoted(name), tuple(bounds), negated, name.start + 1)

    def _matched_number(self, name: _Token, op: _Token, negated: bool) -> Term:
        """`reward:1`, `reward:none` and `reward:*`, of a field that every file has."""
        term = self._matched(name, op, negated)
        number = as_number(term)
        if number is None:
            raise _wrong(name, f'"{term.field}" is a number, and "{term.value:.60}" is not one')
        return number

    def _matched(self, name: _Token, op: _Token, negated: bool) -> Matched:
        following = self._peek()
        if op.text == ":" and following.kind != "end" and following.start != op.end:
            raise _wrong(op, f'nothing after "{name.text:.60}:" (put a text with spaces in quotes)')
        value = self._value(op, colons=True)
        if op.text not in _MATCHES:
            raise _wrong(op, f'"{name.text}" is a text: {name.text}:part, {name.text}=whole or {name.text}!=whole')
        field, text, at = _unquoted(name), _unquoted(value), name.start + 1
        if op.text == ":" and value.kind == "word" and text == ANY:
            return Matched(field, ANY, "", negated, at)
        if field == "state" and text not in STATES:
            raise _wrong(value, f'no state "{text:.60}"{hint(text, STATES)} ({", ".join(STATES)})')
        return Matched(field, _plain(op.text), text, negated, at)

    def _value(self, op: _Token, *, colons: bool = False) -> _Token:
        if self._peek().kind == "end":
            raise _wrong(op, f'nothing after "{op.text}"')
        value = self._take()
        if value.kind in ("op", "bad"):
            raise _wrong(value, "a quote is not closed" if value.text == '"' else f'"{value.text}" is not allowed here')
        while colons and value.kind == "word":  # error:POST:http is one value
            colon, more = self._peek(), self._peek(1)
            if colon.text != ":" or colon.start != value.end:
                break
            self._take()
            value = value._replace(text=value.text + ":", end=colon.end)
            if more.kind == "word" and more.start == colon.end:
                self._take()
                value = value._replace(text=value.text + more.text, end=more.end)
        return value


def _plain(op: str) -> str:
    return "=" if op == "==" else op


def typed(text: str) -> str:
    """A filter as it can be shown and typed again: what cannot be seen in it stands by its code."""
    return INVISIBLE.sub(lambda match: "".join(f"\\u{{{ord(each):x}}}" for each in match.group()), text)


def _unquoted(token: _Token) -> str:
    if token.kind == "string":
        return re.sub(rf"{_BY_CODE}|\\(.)", _character, token.text[1:-1], flags=re.S)
    return _decoded(token.text)


def _decoded(text: str) -> str:
    return re.sub(_BY_CODE, _character, text)


def _character(match: re.Match[str]) -> str:
    if match[1] is None:
        return match[2]
    code = int(match[1], 16)
    return chr(code) if code <= sys.maxunicode and not 0xD800 <= code < 0xE000 else match[0]


def _number(token: _Token) -> float:
    text = _unquoted(token)
    if not _NUMBER.fullmatch(text) or not isfinite(float(text)):
        raise _wrong(token, f'"{text:.60}" is not a number')
    return float(text)


def _words(token: _Token, negated: bool) -> Words:
    text = _unquoted(token)
    prefix = text.endswith("*")
    words = text.rstrip("*")
    if not any(letter.isalnum() for letter in words):
        raise _wrong(token, f"there is no word to search for in {text:.60}")
    return Words(words, prefix, negated, token.start + 1)


def _wrong(token: _Token, what: str) -> InputError:
    return InputError(f"filter, at {token.start + 1}: {what}")
