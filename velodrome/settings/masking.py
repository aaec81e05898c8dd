"""Keep secrets out of everything that is printed or written.

A value is a secret if its key or its form indicates one, or if it is before the `@` of a URL. A known secret is masked
everywhere. Keys that look like names of secrets count as such, except those on a short list. The form of a secret is a
prefix that an issuer uses, or random letters and digits. Every pattern is bounded, so masking takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus, unquote

from velodrome.settings.names import KINDS

MASK = "***"
_PLACEHOLDER = "…"  # in messages, in place of a value
MIN_INSIDE = 6  # a shorter secret is masked only if it is the whole value: too many words contain "x"
_LONG_LINE = 16  # a line of a secret with several lines, such as a key in PEM

_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)([^/?#\s\"'<>]{1,1000})@")
_PLAIN_USERINFO = re.compile(r"(?<![\w.+/@:-])[\w.+-]{1,64}:([^\s:@/\"'<>]{3,200})@(?=[\w\[])")
_SCHEME = re.compile(r"(?i)\b(?:bearer|basic)\s{1,3}([\w.~+/=-]{6,8000})")
# `?sig=…` of a URL, where `key` alone counts too; `Password=…;` of a connection string; `API_KEY=…` of an environment.
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

_URLS = re.compile(r"[^\s\"'<>]+")
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_CHAR = re.compile(r"%([0-9A-Fa-f]{2})|.", re.DOTALL)

_HEADERS = re.compile(r"(?:^|_)headers?$")
_SHOWN_HEADERS = re.compile(r"accept(?:-.*)?|content-(?:type|length|language)|user-agent|cache-control|connection")


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Anywhere in a name, also without a mark between words (`dbpassword`).
_ANYWHERE = re.compile(
    r"secret|passw(?:or)?d|passwort|passphrase|passcode|authori[sz]ation|credential|cookie|bearer|apikey|accesskey|privatekey"
    r"|signingkey|encryptionkey|accountkey|sharedkey"
)
_WORDS = frozenset(("pwd", "pw", "cred", "creds", "jwt", "sig", "signature", "sas", "otp", "hmac", "pat"))
_LAST_WORDS = frozenset(("key", "keys", "pass", "auth"))  # `pass_rate` and `key_count` are not secrets
_SHOWN = frozenset(("key", "keys"))
_SHOWN_KEYS = frozenset(
    ("answer", "cache", "column", "dataset", "field", "foreign", "group", "id", "input", "label", "metric", "output",
     "partition", "primary", "prompt", "public", "registry", "reward", "rollout", "row", "sort", "task")
)  # fmt: skip
_TOKEN = re.compile(r"token(?!s|i[sz]|_(?:id|ids|count|limit|budget|type|index|logprob))")
_VOCABULARY = re.compile(r"(?:bos|eos|pad|unk|sep|cls|mask|stop|image|think)_?token$|^per_token|(?:num|max|min)_token")
# `tokens` after one of these words, or without a word before it, is a count, which is shown.
_COUNTED = frozenset(
    ("accepted", "added", "audio", "batch", "cached", "completion", "context", "generated", "image", "input",
     "limit", "max", "mean", "min", "n", "new", "num", "output", "per", "predicted", "prompt", "reasoning", "rejected",
     "response", "special", "stop", "sum", "text", "thinking", "total")
)  # fmt: skip
_ABOUT_AUTH = frozenset(("type", "url", "uri", "method", "mode", "scheme", "enabled", "required", "server", "host"))

_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|pk|rk)[-_](?=[\w-]{0,200}\d|[\w-]{16})[\w-]{8,300}"
    r"|gh[pousr]_[A-Za-z0-9]{16,300}|github_pat_\w{20,300}|gl[a-z]{2,5}-[\w-]{16,300}|hf_[A-Za-z0-9]{16,300}"
    r"|xox[a-z]-[\w-]{10,300}|xapp-[\w-]{10,300}|(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{12,124}|AIza[\w-]{30,100}|ya29\.[\w-]{16,1000}"
    r"|nvapi-[\w-]{16,300}|npm_[A-Za-z0-9]{16,300}|pypi-[\w-]{16,1000}|SG\.[\w-]{10,100}\.[\w-]{10,100}|gsk_[A-Za-z0-9]{16,300}"
    r"|eyJ[\w-]{8,8000}\.[\w-]{4,8000}(?:\.[\w-]{0,8000})?"
    r")"
)
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[^-]{0,20000}(?:-----END [A-Z0-9 ]{0,60}-----)?"
)
_LONG = re.compile(r"[A-Za-z0-9+/]{24,4096}={1,2}|[A-Za-z0-9]{20,4096}|[A-Za-z0-9_-]{40,4096}")
# Share of neighbouring characters of different classes: 0.62 in random letters and digits, 0.25 in CamelCase.
_LEAST_CHANGES = 0.33
_LEAST_CHANGES_IN_LONG = 0.28
_LONG_CHARS = 32


class _State(NamedTuple):
    """The facts about a value that follow from the keys above it."""

    hidden: bool = False  # it is a secret
    unusual_header: bool = False  # it is the value of an unusual header, which may be a credential
    names: bool = False  # its keys are names of implementations, not of settings
    headers: bool = False  # its keys are names of headers

    def below(self, key: str, value: Any) -> _State:
        """The state of the value under a key."""
        is_name = self.names or (isinstance(value, Mapping) and any(kind in value for kind in KINDS))
        unusual_header = self.unusual_header or (self.headers and not _SHOWN_HEADERS.fullmatch(key.lower()))
        hidden = self.hidden or (not is_name and is_secret_key(key))
        return _State(hidden, unusual_header, key in KINDS, bool(_HEADERS.search(key.lower())))


def mask(data: Any, secrets: Collection[str] = ()) -> Any:
    """A copy of plain data with its secrets, and every value in `secrets`, replaced by `***`."""
    return _masked(data, frozenset(secrets) | secrets_in(data), _State())


def mask_text(text: str, secrets: Collection[str] = ()) -> str:
    """Text in which everything that looks like a secret, and every value in `secrets`, is masked."""
    if text in secrets:
        return MASK
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MIN_INSIDE:
            text = text.replace(secret, MASK)
    pieces, position = [], 0
    for start, end in sorted([*_all_places(text), *_encoded_places(text, secrets)]):
        if start >= position:
            pieces += [text[position:start], MASK]
        position = max(position, end)
    return "".join([*pieces, text[position:]]) if pieces else text


def secrets_in(data: Any) -> frozenset[str]:
    """Every secret in plain data, as text."""
    whole = frozenset(_secrets(data, _State()))
    lines = (line for secret in whole if "\n" in secret for line in secret.splitlines()[1:])
    known = whole | {line for line in lines if len(line) >= _LONG_LINE}  # logs are masked line by line
    return known | {form for secret in known for form in (quote(secret, ""), quote_plus(secret), unquote(secret))}


def _masked(data: Any, secrets: frozenset[str], state: _State) -> Any:
    if isinstance(data, Mapping):
        return {key: _masked(value, secrets, state.below(str(key), value)) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_masked(item, secrets, state) for item in data]
    if (state.hidden or state.unusual_header) and _can_hide(data):
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
        if state.unusual_header and not data.isalpha():  # a plain word in a header is too common to mask everywhere
            yield data
        yield from _secrets_of_text(data)


def _secrets_of_text(text: str) -> Iterator[str]:
    for match in _USERINFO.finditer(text):
        user, _, password = match[2].partition(":")
        yield password or user
    for start, end in _places(text):
        yield text[start:end].strip("\"'")


def _all_places(text: str) -> Iterator[tuple[int, int]]:
    yield from _places(text)
    for match in _USERINFO.finditer(text):
        yield match.span(2)


def _encoded_places(text: str, secrets: Collection[str]) -> Iterator[tuple[int, int]]:
    """The places of secrets with percent-encoded characters. Each byte of UTF-8 is searched as one character."""
    known_forms = {secret.encode(errors="replace").decode("latin-1") for secret in secrets}.union(secrets)
    for url in _URLS.finditer(text) if "%" in text else ():
        if _ENCODED.search(url[0]):
            chars = list(_CHAR.finditer(url[0]))
            ends = [url.start(), *(url.start() + char.end() for char in chars)]
            decoded = "".join(chr(int(char[1], 16)) if char[1] else char[0] for char in chars)
            known_places = (
                match.span()
                for secret in known_forms
                if len(secret) >= MIN_INSIDE
                for match in re.finditer(re.escape(secret), decoded)
            )
            for start, end in (*_all_places(decoded), *known_places):
                yield ends[start], ends[end]


def _places(text: str) -> Iterator[tuple[int, int]]:
    """The places of secrets in a text, except before the `@` of a URL."""
    yield from secret_pieces(text)
    for match in _PLAIN_USERINFO.finditer(text):
        yield match.span(1)
    for match in _SCHEME.finditer(text):
        if not (match[1].isalpha() and match[1].islower()):  # "a bearer please": a word of a sentence
            yield match.span(1)
    for pattern in (_PARAMETER, _ASSIGNED, _QUOTED, _HEADER):
        for match in pattern.finditer(text):
            is_bare_key = pattern is _PARAMETER and match[1].lower() == "key"
            name = match[1]
            if match.start() and text[match.start() - 1] == " ":
                name = name.rpartition(" ")[2]  # `write it as key=…`: a name of two words begins at the start
            if (is_bare_key or is_secret_key(name)) and match[2] not in (MASK, _PLACEHOLDER):
                yield match.span(2)
    if "://" in text:
        for match in _PATH.finditer(text):
            if match[1] in ("key", "keys") or is_secret_key(match[1]):
                yield match.span(2)


def _can_hide(value: Any) -> bool:
    """Whether a value could be a secret: None, empty texts and booleans cannot."""
    return value is not None and not isinstance(value, bool) and value != ""


def is_secret_key(key: str) -> bool:
    """Whether the value of this key must not be shown."""
    words = [word.lower() for word in _WORD.findall(key)]
    name = "_".join(words)
    if not words or name in _SHOWN:
        return False
    if _ANYWHERE.search("".join(words)) or not _WORDS.isdisjoint(words):
        return True
    if words[-1] in _LAST_WORDS:
        return not (words[-1] in ("key", "keys") and words[-2] in _SHOWN_KEYS)
    if "auth" in words and words[-1] not in _ABOUT_AUTH:
        return True
    if "tokens" in words:
        before = words[: words.index("tokens")]
        return bool(before) and _COUNTED.isdisjoint(before)
    return bool(_TOKEN.search(name) and not _VOCABULARY.search(name))


def secret_pieces(text: str) -> Iterator[tuple[int, int]]:
    """The places in a text that have the form of a secret; they may overlap."""
    for pattern in (_PEM, _PREFIXED):
        for match in pattern.finditer(text):
            yield match.span()
    for match in _LONG.finditer(text):
        if _is_random(match[0]):
            yield match.span()


def _is_random(text: str) -> bool:
    """Whether a text is upper case, lower case and digits in random order. Hex digests are not: names use them."""
    classes = [2 if char.isdigit() else char.isupper() for char in text if char.isalnum()]
    if len(set(classes)) < 3:
        return False
    changes = sum(left != right for left, right in pairwise(classes))
    if not text.isalnum() and text[-1] != "=":
        return changes >= len(classes) / 2  # names of models have many short parts
    return changes >= len(classes) * (_LEAST_CHANGES if len(classes) < _LONG_CHARS else _LEAST_CHANGES_IN_LONG)
