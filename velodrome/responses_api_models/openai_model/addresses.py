"""Addresses and headers as a config has them, checked."""

from __future__ import annotations

from typing import Any

from yarl import URL

_EXPECTED = "expected a URL up to and including /v1 (http://127.0.0.1:8000/v1), or a list of them"
_ENDPOINTS = ("/responses", "/completions", "/models")


def base_urls(value: Any) -> tuple[URL, ...]:
    """One address or several, each up to and including `/v1`."""
    listed = value if isinstance(value, list | tuple) else [value]
    if not listed:
        raise ValueError(_EXPECTED)
    urls = tuple(map(_base_url, listed))
    if len(set(urls)) < len(urls):
        raise ValueError("an address is in the list twice")
    return urls


def header_text(value: Any) -> str:
    """A text that can stand in a header."""
    if not isinstance(value, str) or not value.isprintable() or not value.isascii():
        raise ValueError("expected one line of ASCII text")
    return value


def _base_url(value: Any) -> URL:
    if not isinstance(value, str | URL):
        raise ValueError(_EXPECTED)
    try:
        url = URL(value)
    except ValueError:
        raise ValueError(_EXPECTED) from None
    path = url.path.rstrip("/")
    if url.scheme not in ("http", "https") or not url.host or path.endswith(_ENDPOINTS):
        raise ValueError(_EXPECTED)
    return url.with_path(path or "/v1", keep_query=True)
