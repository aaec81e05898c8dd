"""A browser on the viewer. VELODROME_SCREENSHOTS=folder keeps what it looks like."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from patience import DEADLINE_S
from trace_viewer import ROOT, keep_screenshot

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


def keep(look: Looking, name: str, way: str) -> None:
    """The page is as wide as the screen in light, in dark and on a phone; screenshots of all."""
    for scheme, size in (("light", "desktop"), ("dark", "desktop"), ("light", "phone"), ("dark", "phone")):
        page = look.open(scheme, size)
        page.goto(look.url + way)
        page.wait_for_selector(".pending", state="detached")
        keep_screenshot(page, f"{name}-{scheme}-{size}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0], (name, scheme, size)
        page.close()


def serious(page: Any, **options: Any) -> list[tuple[str, str]]:
    """What axe-core finds wrong with a page and calls serious or critical, each with the first place."""
    found = Axe().run(page, options={"resultTypes": ["violations"], **options}).response["violations"]
    grave = [each for each in found if each["impact"] in ("serious", "critical")]
    return [(each["id"], each["nodes"][0]["html"][:200]) for each in grave]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def web_server(folder: Path) -> Iterator[str]:
    """The address of a web server on loopback with the files of a folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class EmptyPage(BaseHTTPRequestHandler):
    """A page of another site, wherever one looks."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><body>")

    def log_message(self, *args: Any) -> None:
        return


# Words on what is behind them, by WCAG: 4.5 for text, 3 for large text.
CONTRAST = """
() => {
  const bright = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] / 255 + below[i] * (1 - top[3] / 255));
  const behind = (node) => { const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]); };
  const faint = [];
  for (const node of document.querySelectorAll('main *, header *, footer *')) {
    const own = [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
    if (!own || node.closest('[aria-disabled], .unseen, dialog') || !node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const back = behind(node);
    const paint = node.closest('svg') ? style.fill : style.color;
    const text = over(rgba(paint), back);
    const [high, low] = [bright(text), bright(back)].sort((a, b) => b - a);
    const large = parseFloat(style.fontSize) >= 24;
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < (large ? 3 : 4.5) && !/^on-/.test(node.getAttribute('class')?.split(' ')[1] ?? ''))
      faint.push([node.tagName, node.className.toString(), node.textContent.trim().slice(0, 30), ratio.toFixed(2)]);
  }
  return faint;
}
"""


UNNAMED = """
() => [...document.querySelectorAll('a, button, input, select')].filter(each => each.checkVisibility()
  && !(each.textContent.trim() || each.labels?.length || each.ariaLabel)).length
"""
