"""What the config block of an `openai_model` may say, checked once, every mistake at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from yarl import URL

from velodrome.errors import InputError
from velodrome.settings.kinds import FOREIGN

Endpoint = Literal["responses", "chat"]


@dataclass(frozen=True, slots=True)
class Settings:
    """A checked block. `base_urls` end before `/responses`."""

    base_urls: tuple[URL, ...]
    openai_model: str
    openai_api_key: str | None = None
    endpoint: Literal["auto", "responses", "chat"] = "auto"
    timeout_s: float = 600.0
    total_timeout_s: float = 1800.0
    max_retries: int = 5
    backoff_s: float = 0.5
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    max_concurrent: int | None = None
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"


def read_settings(config: Mapping[str, Any]) -> Settings:
    """The block as settings; raises `InputError` with a line for every mistake."""
    given = {name: value for name, value in config.items() if name not in FOREIGN and value is not None}
    problems = [f'openai_model: no "{name}"' for name in ("openai_base_url", "openai_model") if name not in given]
    for name, value in given.items():
        if name not in _CHECKS:
            near = get_close_matches(name, _CHECKS, 1)
            way_out = f'did you mean "{near[0]}"?' if near else f"known keys: {', '.join(_CHECKS)}"
            problems.append(f'openai_model: unknown key "{name}" ({way_out})')
        elif not _CHECKS[name][0](value):
            problems.append(f"openai_model: {name}: expected {_CHECKS[name][1]}")
    if problems:
        raise InputError(*problems)
    urls = given.pop("openai_base_url")
    base_urls = tuple(_base_url(url) for url in (urls if isinstance(urls, list | tuple) else [urls]))
    return Settings(base_urls=base_urls, **given)


def _base_url(text: str) -> URL:
    url = URL(text)
    path = url.path.rstrip("/")
    return url.with_path(path or "/v1", keep_query=True)


def _is_base_url(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(url, str) and _is_base_url(url) for url in value)
    if not isinstance(value, str):
        return False
    try:
        url = URL(value)
    except ValueError:
        return False
    return url.scheme in ("http", "https") and bool(url.host) and not url.path.rstrip("/").endswith(_ENDPOINTS)


def _is_header(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and value.isascii()


def _is_headers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_is_header(name) and _is_header(text) for name, text in value.items())


def _number(least: float, *, whole: bool = False, above: bool = False) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            return False
        return bool(value > least if above else value >= least)

    return check


def _one_of(*choices: str) -> Callable[[Any], bool]:
    return lambda value: value in choices


_ENDPOINTS = ("/responses", "/completions", "/models")
_SECONDS = (_number(0, above=True), "a number of seconds above 0")
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "openai_base_url": (_is_base_url, "a URL up to and including /v1 (http://127.0.0.1:8000/v1), or a list of them"),
    "openai_api_key": (_is_header, "one line of ASCII text"),
    "openai_model": (lambda value: isinstance(value, str) and bool(value), "the name of a model"),
    "endpoint": (_one_of("auto", "responses", "chat"), "auto, responses or chat"),
    "timeout_s": _SECONDS,
    "total_timeout_s": _SECONDS,
    "max_retries": (_number(0, whole=True), "a whole number, 0 or more"),
    "backoff_s": (_number(0), "a number of seconds, 0 or more"),
    "extra_body": (lambda value: isinstance(value, Mapping), "a mapping of request fields"),
    "headers": (_is_headers, "a mapping of names to one line of ASCII text"),
    "max_concurrent": (_number(1, whole=True), "a whole number, 1 or more"),
    "max_tokens_field": (_one_of("max_tokens", "max_completion_tokens"), "max_tokens or max_completion_tokens"),
}
NAMES = tuple(_CHECKS)
