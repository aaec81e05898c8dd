"""Two viewers on the same rollouts: ours and Inspect's, each in a process of its own, in the same Chromium.

    python -m benchmarks.viewers rollouts.jsonl [--json results/viewers.json]

The rollouts become a log of Inspect's first. What is measured is what a reader meets: how long until the list and a
rollout are there, how much is sent, how much the page holds, whether it works without scripts, on a phone, and what
axe-core reports. docs/viewer.md has the table.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from scripts.test_needs import chromium

ROOT = Path(__file__).parent.parent
INSPECT = ROOT / ".interop/inspect/bin"
ROUNDS = 5
Json = dict[str, Any]


@contextmanager
def started(command: list[str], address: str) -> Iterator[str]:
    """A viewer that runs until the end; its address is in what it prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout
            for line in process.stdout:
                if found := re.search(address, line):
                    yield found[0].rstrip("/")
                    break
        finally:
            process.terminate()


def opened(browser: Browser, address: str, there: Callable[[Page], Any], **options: Any) -> tuple[Page, Json]:
    """A page in a browser that has seen nothing yet, as soon as what a reader wants is there."""
    context = browser.new_context(viewport={"width": options.pop("width", 1440), "height": 900}, **options)
    page = context.new_page()
    sent: list[int] = []
    page.on("response", lambda answer: sent.append(int(answer.headers.get("content-length") or 0)))
    began = time.monotonic()
    page.goto(address)
    there(page)
    values = {"s": time.monotonic() - began, "kb": sum(sent) / 1000, "requests": len(sent)}
    values["elements"] = page.evaluate("document.querySelectorAll('*').length")
    values["heap_mb"] = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
    return page, values


def looked(browser: Browser, address: str, there: Callable[[Page], Any]) -> Json:
    """A page several times; the middle of each figure, and how far they spread."""
    from axe_playwright_python.sync_playwright import Axe

    rounds = []
    for _ in range(ROUNDS):
        page, values = opened(browser, address, there)
        rounds.append(values)
        serious = [
            each["id"] for each in Axe().run(page).response["violations"] if each["impact"] in ("serious", "critical")
        ]
        page.context.close()
    narrow, _ = opened(browser, address, there, width=390)
    width = narrow.evaluate("document.documentElement.scrollWidth")
    narrow.context.close()
    bare = browser.new_context(java_script_enabled=False)
    page = bare.new_page()
    page.goto(address)
    words = len(page.inner_text("body").split())
    bare.close()
    result: Json = {name: median(each[name] for each in rounds) for name in rounds[0]}
    result["s_range"] = [min(each["s"] for each in rounds), max(each["s"] for each in rounds)]
    return {**result, "serious": sorted(set(serious)), "width_at_390": width, "words_without_scripts": words}


def compared(rollouts: Path, folder: Path) -> Json:
    """Both viewers: the list, and the first rollout."""
    log = folder / "2026-11-18T00-00-00_rollouts_x.eval"
    subprocess.run([INSPECT / "python", ROOT / "benchmarks/peers/inspect_log.py", rollouts, log], check=True)
    with rollouts.open("rb") as lines:
        rows = [json.loads(line) for line in lines]
    task, _, repeat = rows[0]["meta"]["key"].rpartition("/")
    ours = [sys.executable, "-m", "velodrome.cli.main", "view", str(rollouts)]
    theirs = [
        str(INSPECT / "inspect"),
        "view",
        "start",
        "--log-dir",
        str(folder),
        "--host",
        "127.0.0.1",
        "--port",
        "7575",
    ]
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=chromium(),
            args=["--no-sandbox", "--disable-background-networking", "--enable-precise-memory-info"],
        )
        with started(ours, r"http://\S+/") as url:
            slug = rollouts.name.removesuffix(".jsonl")
            while not browser.new_page().request.get(f"{url}/pulse").json()["complete"]:
                pass
            velodrome = {
                "list": looked(
                    browser, f"{url}/run/{slug}/rollouts", lambda page: page.wait_for_selector("[data-row]")
                ),
                "rollout": looked(
                    browser, f"{url}/run/{slug}/rollout/1", lambda page: page.wait_for_selector("article")
                ),
            }
        with started(theirs, r"http://\S+") as url:
            root = f"{url}/#/tasks/{log.name}"
            inspect = {
                "list": looked(browser, root, lambda page: page.wait_for_selector(f"text={len(rows)} rows")),
                "rollout": looked(
                    browser,
                    f"{root}/samples/sample/{task}/{int(repeat) + 1}/",
                    lambda page: page.wait_for_selector("text=MESSAGES"),
                ),
            }
        browser.close()
    return {"rollouts": len(rows), "velodrome": velodrome, "inspect": inspect}


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rollouts", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        result = compared(arguments.rollouts.absolute(), Path(folder))
    print(json.dumps(result, indent=2))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
