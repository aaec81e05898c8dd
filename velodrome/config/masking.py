"""Keep secrets out of everything that is printed or written.

A value is a secret when its key says so, or when it stands before the `@` of a URL; once known, it is masked
wherever it stands.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from velodrome.config.kinds import KINDS

MASK = "***"
MIN_INSIDE = 6  # a shorter secret is masked only where it is the whole value: "x" stands inside too many words

_SECRET = re.compile(
    r"(?:api|private|access|auth|subscription)_?key|secret|passw(?:or)?d|passphrase|authorization|credential|cookie"
    r"|(?:^|_)auth$"
)
# One token is a secret; many tokens are a count; these are parts of a vocabulary.
_TOKEN = re.compile(r"token(?!s|i[sz]|_(?:id|ids|count|limit|budget|type|index|logprob))")
_VOCABULARY = re.compile(r"(?:bos|eos|pad|unk|sep|cls|mask|stop|image|think)_?token$|^per_token|(?:num|max|min)_token")
# Bounded repeats: masking a megabyte of text takes time in proportion to it, whatever it holds.
_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)([^/?#\s\"'<>]{1,1000})@")
_QUERY = re.compile(r"([?&])([^=?&#\s]{1,100})=([^&#\s\"']+)")


def is_secret_key(key: str) -> bool:
    """Whether what stands under this key must not be shown."""
    name = key.lower().replace("-", "_").replace(" ", "_")
    return bool(_SECRET.search(name) or (_TOKEN.search(name) and not _VOCABULARY.search(name)))


def mask(data: Any, secrets: Collection[str] = ()) -> Any:
    """A copy of plain data with its secrets, and every value in `secrets`, replaced by `***`."""
    return _masked(data, frozenset(secrets) | found_secrets(data))


def mask_text(text: str, secrets: Collection[str] = ()) -> str:
    """Text without passwords in URLs and without the values in `secrets`."""
    if text in secrets:
        return MASK
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MIN_INSIDE:
            text = text.replace(secret, MASK)
    text = _USERINFO.sub(rf"\1{MASK}@", text)
    return _QUERY.sub(_mask_parameter, text)


def found_secrets(data: Any) -> frozenset[str]:
    """Every secret in plain data, as text."""
    return frozenset(_secrets(data))


def _mask_parameter(match: re.Match[str]) -> str:
    mark, name, value = match.groups()
    return f"{mark}{name}={MASK if is_secret_key(name) else value}"


def _children(data: Mapping[str, Any], *, hidden: bool, named: bool) -> Iterator[tuple[str, Any, bool, bool]]:
    """Each key, its value, whether that value is secret, and whether its keys are names.

    The name of an instance or an implementation says what it is, not that its settings are secret.
    """
    for key, value in data.items():
        is_name = named or (isinstance(value, Mapping) and any(kind in value for kind in KINDS))
        yield key, value, hidden or (not is_name and is_secret_key(str(key))), key in KINDS


def _masked(data: Any, secrets: frozenset[str], *, hidden: bool = False, named: bool = False) -> Any:
    if isinstance(data, Mapping):
        return {
            key: _masked(value, secrets, hidden=secret, named=names)
            for key, value, secret, names in _children(data, hidden=hidden, named=named)
        }
    if isinstance(data, list | tuple):
        return [_masked(item, secrets, hidden=hidden) for item in data]
    if hidden and _can_hide(data):
        return MASK
    return mask_text(data, secrets) if isinstance(data, str) else data


def _secrets(data: Any, *, hidden: bool = False, named: bool = False) -> Iterator[str]:
    if isinstance(data, Mapping):
        for _, value, secret, names in _children(data, hidden=hidden, named=named):
            yield from _secrets(value, hidden=secret, named=names)
    elif isinstance(data, list | tuple):
        for item in data:
            yield from _secrets(item, hidden=hidden)
    elif hidden and _can_hide(data):
        yield str(data)
    elif isinstance(data, str):
        yield from _secrets_in_urls(data)


def _secrets_in_urls(text: str) -> Iterator[str]:
    for match in _USERINFO.finditer(text):
        user, _, password = match[2].partition(":")
        yield password or user
    for match in _QUERY.finditer(text):
        if is_secret_key(match[2]):
            yield match[3]


def _can_hide(value: Any) -> bool:
    """Whether a value could be a secret: nothing, yes and no are not."""
    return value is not None and not isinstance(value, bool) and value != ""
