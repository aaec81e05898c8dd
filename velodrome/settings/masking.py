"""Keep secrets out of everything that is printed or written.

A value is a secret when its name or its own form says so, or when it stands before the `@` of a URL; once known, it is
masked wherever it stands.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from velodrome.settings.kinds import KINDS
from velodrome.settings.secret_names import is_secret_key, secret_pieces

MASK = "***"
MIN_INSIDE = 6  # a shorter secret is masked only where it is the whole value: "x" stands inside too many words
_LONG_LINE = 16  # of a secret with several lines, such as a key in PEM

# Bounded repeats: masking a megabyte of text takes time in proportion to it, whatever it holds.
_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)([^/?#\s\"'<>]{1,1000})@")
_PLAIN_USERINFO = re.compile(r"(?<![\w.+/@:-])[\w.+-]{1,64}:([^\s:@/\"'<>]{3,200})@(?=[\w\[])")
_SCHEME = re.compile(r"(?i)\b(?:bearer|basic)\s{1,3}([\w.~+/=-]{6,8000})")
# `?sig=…` of a URL, where a mere `key` is one too; `Password=…;` of a connection string; `API_KEY=…` of an environment.
_PARAMETER = re.compile(r"[?&]([^=?&#\s]{1,100})=([^&#\s\"']{1,4000})")
_ASSIGNED = re.compile(
    r"(?<![\w.-])([A-Za-z_][\w.-]{0,60}(?: [A-Za-z][\w.-]{0,30})?)="
    r"(\"[^\"\n]{1,2000}\"|'[^'\n]{1,2000}'|[^&;#,\s\"']{1,4000})"
)
# `'api_key': '…'` of a printed mapping, `x-api-key: …` of a printed header, `/token/…` of a URL.
_QUOTED = re.compile(r"[\"']([\w.-]{1,60})[\"']\s{0,3}:\s{0,3}[\"']([^\"'\n]{1,4000})[\"']")
_HEADER = re.compile(
    r"(?i)(?<![\w-])(x-[\w-]{1,60}|(?:proxy-)?authorization|(?:set-)?cookie):\s{0,3}([^\r\n\"']{1,4000})"
)
_PATH = re.compile(r"/([\w.-]{1,60})/([^/?#\s\"'<>]{6,1000})")

_HEADERS = re.compile(r"(?:^|_)headers?$")
_SHOWN_HEADERS = re.compile(r"accept(?:-.*)?|content-(?:type|length|language)|user-agent|cache-control|connection")


class _State(NamedTuple):
    """What is known of a value from the keys above it."""

    hidden: bool = False  # it is a secret
    made_up: bool = False  # it is the value of a header that is not a usual one, which is there to let somebody in
    names: bool = False  # its keys are names of implementations: they do not say that their settings are secret
    headers: bool = False  # its keys are names of headers

    def below(self, key: str, value: Any) -> _State:
        """The same for what stands under a key."""
        is_name = self.names or (isinstance(value, Mapping) and any(kind in value for kind in KINDS))
        made_up = self.made_up or (self.headers and not _SHOWN_HEADERS.fullmatch(key.lower()))
        hidden = self.hidden or (not is_name and is_secret_key(key))
        return _State(hidden, made_up, key in KINDS, bool(_HEADERS.search(key.lower())))


def mask(data: Any, secrets: Collection[str] = ()) -> Any:
    """A copy of plain data with its secrets, and every value in `secrets`, replaced by `***`."""
    return _masked(data, frozenset(secrets) | found_secrets(data), _State())


def mask_text(text: str, secrets: Collection[str] = ()) -> str:
    """Text without what looks like a secret and without the values in `secrets`."""
    if text in secrets:
        return MASK
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MIN_INSIDE:
            text = text.replace(secret, MASK)
    kept, done = [], 0
    for start, end in sorted([*_places(text), *(match.span(2) for match in _USERINFO.finditer(text))]):
        if start >= done:
            kept += [text[done:start], MASK]
        done = max(done, end)
    return "".join([*kept, text[done:]]) if kept else text


def found_secrets(data: Any) -> frozenset[str]:
    """Every secret in plain data, as text."""
    whole = frozenset(_secrets(data, _State()))
    lines = (line for secret in whole if "\n" in secret for line in secret.splitlines()[1:])
    return whole | {line for line in lines if len(line) >= _LONG_LINE}  # logs are masked line by line


def _masked(data: Any, secrets: frozenset[str], state: _State) -> Any:
    if isinstance(data, Mapping):
        return {key: _masked(value, secrets, state.below(str(key), value)) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_masked(item, secrets, state) for item in data]
    if (state.hidden or state.made_up) and _can_hide(data):
        return MASK
    return mask_text(data, secrets) if isinstance(data, str) else data


def _secrets(data: Any, state: _State) -> Iterator[str]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _secrets(value, state.below(str(key), value))
    elif isinstance(data, list | tuple):
        for item in data:
            yield from _secrets(item, state)
    elif state.hidden and _can_hide(data):
        yield str(data)
    elif isinstance(data, str):
        if state.made_up and not data.isalpha():  # a header's plain word may stand anywhere
            yield data
        yield from _secrets_in(data)


def _secrets_in(text: str) -> Iterator[str]:
    for match in _USERINFO.finditer(text):
        user, _, password = match[2].partition(":")
        yield password or user
    for start, end in _places(text):
        yield text[start:end].strip("\"'")


def _places(text: str) -> Iterator[tuple[int, int]]:
    """Where in a text secrets stand, other than before the `@` of a URL."""
    yield from secret_pieces(text)
    for match in _PLAIN_USERINFO.finditer(text):
        yield match.span(1)
    for match in _SCHEME.finditer(text):
        if not (match[1].isalpha() and match[1].islower()):  # "a bearer please": a word of a sentence
            yield match.span(1)
    for pattern in (_PARAMETER, _ASSIGNED, _QUOTED, _HEADER):
        for match in pattern.finditer(text):
            bare = pattern is _PARAMETER and match[1].lower() == "key"
            name = match[1]
            if match.start() and text[match.start() - 1] == " ":
                name = name.rpartition(" ")[2]  # `write it as key=…`: only where a name begins has it two words
            if (bare or is_secret_key(name)) and match[2] != MASK:
                yield match.span(2)
    if "://" in text:
        for match in _PATH.finditer(text):
            if match[1] in ("key", "keys") or is_secret_key(match[1]):
                yield match.span(2)


def _can_hide(value: Any) -> bool:
    """Whether a value could be a secret: nothing, yes and no are not."""
    return value is not None and not isinstance(value, bool) and value != ""
