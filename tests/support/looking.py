"""A browser on the viewer. VELODROME_SCREENSHOTS=folder keeps what it looks like."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe

from tests.support.http_server import Quiet, serving
from tests.support.patience import DEADLINE_S
from tests.support.trace_viewer import ROOT

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
PATIENCE_S = float(DEADLINE_S)  # for what comes by itself


class Looking:
    """A browser on a viewer in a process of its own. What a page says, asks for elsewhere or pops up is remembered."""

    def __init__(self, chromium: Any, url: str) -> None:
        self.chromium = chromium
        self.url = url.rstrip("/")
        self.said: list[str] = []
        self.outside: list[str] = []
        self.page = self.open("light", "desktop")

    def open(self, scheme: str, size: str) -> Any:
        width, height = SIZES[size]
        page = self.chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", self._refuse)
        page.on("request", lambda request: request.url.startswith(self.url + "/") or self.outside.append(request.url))
        return page

    def _refuse(self, dialog: Any) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def goto(self, path: str) -> None:
        self.page.goto(self.url + path)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def at(self, pattern: str) -> str:
        self.page.wait_for_url(re.compile(pattern))
        result: str = self.page.url.removeprefix(self.url)
        return result

    def words(self, selector: str = "main") -> str:
        return " ".join(self.page.inner_text(selector).split())

    def sees(self, words: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until the page says so, by itself."""
        end = time.monotonic() + PATIENCE_S
        while words not in (said := self.words()):
            assert time.monotonic() < end, f"{words!r} never came: {said}"
            meanwhile()
            self.page.wait_for_timeout(100)

    def settled(self) -> None:
        """Wait until the viewer has read its files: a list does not move under its reader, so it must be whole."""
        end = time.monotonic() + PATIENCE_S
        while not self.page.request.get(f"{self.url}/pulse").json()["complete"]:
            assert time.monotonic() < end, "the index was never complete"


@contextmanager
def look_at(chromium: Any, *files: Path) -> Iterator[Looking]:
    """A browser on a viewer in a process of its own, which ends by itself when it is told to."""
    command = [sys.executable, "-m", "velodrome.cli.main", "view", *map(str, files)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stderr
            address = re.search(r"http://\S+/", process.stderr.readline())
            assert address
            look = Looking(chromium, address[0])
            look.settled()
            yield look
            for page in look.page.context.pages:
                page.close()
        finally:
            process.terminate()
        assert process.wait(PATIENCE_S) == 0


def serious(page: Any, **options: Any) -> list[tuple[str, str]]:
    """What axe-core finds wrong with a page and calls serious or critical, each with the first place."""
    found = Axe().run(page, options={"resultTypes": ["violations"], **options}).response["violations"]
    grave = [each for each in found if each["impact"] in ("serious", "critical")]
    return [(each["id"], each["nodes"][0]["html"][:200]) for each in grave]


@contextmanager
def web_server(folder: Path) -> Iterator[str]:
    """The address of a web server on loopback with the files of a folder."""

    class Files(Quiet, SimpleHTTPRequestHandler):
        pass

    with serving(partial(Files, directory=str(folder))) as url:
        yield url


class EmptyPage(Quiet):
    """A page of another site, wherever one looks."""

    def do_GET(self) -> None:
        self.reply(200, "text/html", b"<!doctype html><title>elsewhere</title><body>")
