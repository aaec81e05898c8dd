"""Which names and which pieces of text look like secrets.

A name that looks like one is one, unless it is on the short list of names that are shown. A piece of text is judged by
its form: the prefixes that issuers give their keys, or letters and digits in no order. Every pattern is bounded, so
that a megabyte of text takes time in proportion to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Anywhere in a name, also without a mark between words (`dbpassword`).
_ANYWHERE = re.compile(
    r"secret|passw(?:or)?d|passwort|passphrase|passcode|authori[sz]ation|credential|cookie|bearer|apikey|accesskey|privatekey"
    r"|signingkey|encryptionkey|accountkey|sharedkey"
)
_WORDS = frozenset(("pwd", "pw", "cred", "creds", "jwt", "sig", "signature", "sas", "otp", "hmac", "pat"))
_LAST_WORDS = frozenset(("key", "keys", "pass", "auth"))  # `pass_rate` and `key_count` are none
_SHOWN = frozenset(("key", "keys"))
_SHOWN_KEYS = frozenset(
    ("answer", "cache", "column", "dataset", "field", "foreign", "group", "id", "input", "label", "metric", "output",
     "partition", "primary", "prompt", "public", "registry", "reward", "rollout", "row", "sort", "task")
)  # fmt: skip
_TOKEN = re.compile(r"token(?!s|i[sz]|_(?:id|ids|count|limit|budget|type|index|logprob))")
_VOCABULARY = re.compile(r"(?:bos|eos|pad|unk|sep|cls|mask|stop|image|think)_?token$|^per_token|(?:num|max|min)_token")
# Many tokens are a count, and are shown, where a word before them says so or none does.
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
# Of all neighbours in a text, those of another class. In random letters and digits they are 0.62, in CamelCase 0.25.
_LEAST_CHANGES = 0.33
_LEAST_CHANGES_IN_LONG = 0.28
_LONG_CHARS = 32


def is_secret_key(key: str) -> bool:
    """Whether what stands under this key must not be shown."""
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
    """Where text has the form of a secret, from left to right; stretches may overlap."""
    for pattern in (_PEM, _PREFIXED):
        for match in pattern.finditer(text):
            yield match.span()
    for match in _LONG.finditer(text):
        if _is_random(match[0]):
            yield match.span()


def _is_random(text: str) -> bool:
    """Upper and lower case letters and digits, in no order. Digests in hex are not: they look the same as names."""
    classes = [2 if char.isdigit() else char.isupper() for char in text if char.isalnum()]
    if len(set(classes)) < 3:
        return False
    changes = sum(one != other for one, other in pairwise(classes))
    if not text.isalnum() and text[-1] != "=":
        return changes >= len(classes) / 2  # names of models are made of many short parts
    return changes >= len(classes) * (_LEAST_CHANGES if len(classes) < _LONG_CHARS else _LEAST_CHANGES_IN_LONG)
