"""A viewer over files, asked as a browser would ask it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from tests.support.parsed_page import Page
from tests.support.patience import DEADLINE_S
from velodrome.viewer.app import make_app

ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


PATIENCE_S = float(DEADLINE_S)  # for what is made in the background

TAGS = {
    "html", "head", "meta", "title", "link", "script", "body", "a", "header", "div", "svg", "rect", "line", "path", "g",
    "text", "circle", "span", "nav", "main", "ul", "ol", "li", "p", "h1", "h2", "h3", "h4", "dl", "dt", "dd", "figure",
    "figcaption", "section", "article", "table", "thead", "tbody", "tr", "th", "td", "footer", "button", "kbd",
    "dialog", "canvas", "defs", "pattern",
    "form", "label", "input", "details", "summary", "code", "b", "br", "pre", "time", "mark", "select", "option",
    "fieldset", "legend", "output", "img", "textarea", "datalist",
}  # fmt: skip


@contextmanager
def viewing(*files: Path, **settings: Any) -> Iterator[TestClient]:
    with TestClient(make_app(files, **settings), base_url="http://127.0.0.1", follow_redirects=False) as client:
        yield client


def page_at(client: TestClient, path: str, status: int = 200) -> Page:
    answer = client.get(path)
    assert answer.status_code == status, answer.text[:2000]
    return harmless(Page(answer.text))


def harmless(page: Page) -> Page:
    """The page, which is whole, and in which no attribute runs, no style is a text's, and nothing is loaded."""
    assert (page.crossed, page.unclosed) == ([], [])
    for tag, attrs in page.tags:
        assert [name for name in attrs if name.startswith("on") or name == "style"] == []
        assert tag not in ("iframe", "object", "base", "style")
        assert tag != "script" or attrs.get("src")
    return page


def wait_for(client: TestClient, path: str, words: str, *, gone: str = "\0") -> Page:
    """The page, once what is made in the background is there, and `gone` is not any more."""
    end = time.monotonic() + PATIENCE_S
    while words not in (page := page_at(client, path)).words or gone in page.words:
        assert time.monotonic() < end, f"{words!r} never came: {page.words}"
        time.sleep(0.01)  # the one who makes it needs the processor too
    return page
