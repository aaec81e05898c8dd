"""The pictures of README and docs/, in light and dark, from real runs: `make pictures`.

The demo's small model does sums with a calculator, two scripted models do 100 sums four times, and a policy learns
to balance a pole. Chromium looks at them in `velo view` and at one command on a terminal. The window is fixed, nothing
moves, and paths and dates are replaced, because they are of the machine and the moment. Pillow comes with tensorboard.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import json
import os
import pty
import re
import runpy
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from velodrome.viewer.content.tool_output import terminal_colours

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
VELO = Path(sys.executable).parent / "velo"
WINDOW = {"width": 1200, "height": 750}
SCALE = 2  # sharp on a dense screen, and still small
COLOURS = 96
ELSEWHERE = """([folder, day]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(folder, "~")
    .replace(/\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d(:\\d\\d)?/g, (date) => day.slice(0, date.length));
}"""
TERMINAL_STYLE = "#terminal { margin: 0; padding: 18px 22px; width: max-content; font-size: 15px; line-height: 1.4 }"
MODELS = '''
import random


def answer(request, slips):
    """Asks the calculator for the sum, or slips and asks for another."""
    items = request["input"]
    question = next(item["content"] for item in items if item.get("role") == "user")
    luck = random.Random(f"{slips} {question} {request['seed']}").random()
    if not any(item.get("type") == "function_call_output" for item in items):
        asked = question[len("What is ") : -1].replace("×", "*") + (" + 1" if luck < slips else "")
        call = {"name": "calculator", "arguments": {"expression": asked}}
        return {"reasoning_content": f"I should compute {asked}.", "tool_calls": [call]}
    return "The result is {tool_result}."


def small(request):
    return answer(request, slips=0.4)


def large(request):
    return answer(request, slips=0.25)
'''


def run(*words: str, cwd: Path) -> None:
    subprocess.run([VELO, *words], cwd=cwd, check=True, stdout=subprocess.DEVNULL)


def make_runs(folder: Path) -> None:
    """Rollouts of a real model, of two scripted ones, and a training run, in `runs`."""
    shutil.copy(ROOT / "examples" / "demo_tasks.jsonl", folder / "sums.jsonl")
    demo = "velo collect calculator local_model sums.jsonl -o runs/demo.jsonl --limit 24 --seed 1"
    (folder / "terminal.txt").write_text(on_a_terminal(demo, folder))
    run("data", "generate", "calculator", "+n=100", "+seed=1", "+output=more.jsonl", cwd=folder)
    (folder / "models.py").write_text(MODELS)
    for name in ("small", "large"):
        model = {"function": "models.py:" + name, "latency_s": 0.02, "jitter_s": 0.08, "model": name}
        (folder / f"{name}.yaml").write_text(f"policy_model: {{responses_api_models: {{scripted_model: {model}}}}}\n")
        output = f"runs/{name}.jsonl"
        run("collect", "calculator", f"{name}.yaml", "more.jsonl", "-o", output, "-n", "4", "--seed", "2", cwd=folder)
    run("train", "cartpole", "run=cartpole", "output.train_dir=runs", "output.episodes=2", cwd=folder)


def on_a_terminal(command: str, folder: Path) -> str:
    """What a reader of 92 columns sees, with its colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 92, 0, 0))
    environ = {
        **os.environ,
        "TERM": "xterm-256color",
        "COLUMNS": "92",
        "PATH": f"{VELO.parent}{os.pathsep}{os.environ['PATH']}",
    }
    environ.pop("NO_COLOR", None)
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    seen = bytearray()
    while True:
        try:
            seen += os.read(ours, 65536)
        except OSError:  # its programs have ended
            break
    os.close(ours)
    assert process.wait() == 0, seen.decode()
    return f"$ {command}\n" + re.sub(r"[^\n]*\r(?!\n)", "", seen.decode().replace("\r\n", "\n"))


@contextmanager
def viewer(folder: Path) -> Iterator[str]:
    """The address of a viewer of a folder of runs."""
    with subprocess.Popen([VELO, "view", "runs"], stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            assert process.stderr
            address = re.search(r"http://[^\s/]+", process.stderr.readline())
            assert address, "the viewer did not start"
            yield address[0]
        finally:
            process.terminate()


def pages(folder: Path) -> dict[str, str]:
    """What is photographed, and where it is. The rollout is a right one of the real model, which used its tool."""
    rows = [json.loads(line) for line in (folder / "runs" / "demo.jsonl").open()]
    right = min(row["meta"]["key"] for row in rows if row["reward"] == 1 and len(row["output"]) > 1)
    trained = next((folder / "runs").glob("cartpole_*")).name
    return {
        "overview": "/run/large",
        "list": "/run/large/rollouts?q=0%3Cpass_rate%3C1",
        "transcript": f"/run/demo/key/{right}",
        "compare": "/compare?run=small&run=large",
        "training": f"/training/{trained}",
        "runs": "/",
    }


def save(name: str, png: bytes) -> None:
    """A screenshot with as few colours as it needs."""
    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(PICTURES / f"{name}.png", optimize=True)
    print(f"{name}.png  {(PICTURES / f'{name}.png').stat().st_size / 1000:.0f} KB")


def photograph(chromium: Browser, scheme: Any, address: str, folder: Path) -> None:
    """Every picture in one colour scheme."""
    page = chromium.new_page(viewport=WINDOW, device_scale_factor=SCALE, color_scheme=scheme, reduced_motion="reduce")
    for name, path in pages(folder).items():
        page.goto(address + path)
        page.wait_for_selector(".pending", state="detached")
        page.wait_for_load_state("networkidle")
        page.evaluate(ELSEWHERE, [str(folder), "2026-01-02 12:00:00"])
        save(f"{name}-{scheme}", page.screenshot(animations="disabled"))
    style = page.request.get(f"{address}/static/viewer.css").text()
    page.goto("about:blank")  # where no policy forbids a style
    drawn = terminal_colours((folder / "terminal.txt").read_text())
    page.set_content(f"<style>{style} {TERMINAL_STYLE}</style><pre id=terminal>{drawn}</pre>")
    save(f"terminal-{scheme}", page.locator("#terminal").screenshot())
    page.close()


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    PICTURES.mkdir(exist_ok=True)
    path = runpy.run_path(str(ROOT / "scripts" / "test_needs.py"))["chromium"]()
    with TemporaryDirectory() as made:
        folder = Path(made)
        make_runs(folder)
        with viewer(folder) as address, sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            for scheme in ("light", "dark"):
                photograph(chromium, scheme, address, folder)
            chromium.close()


if __name__ == "__main__":
    main()
