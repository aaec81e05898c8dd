"""The commands of the README and docs/export.md run; docs/serving.md gives the answers that its commands get."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import FENCE, ROOT, blocks, command_lines, read, section
from tests.support.patience import DEADLINE_S

# README commands that are not run: they set up an environment, or need a model server or weights that are not there.
SKIPPED = ("make", "git", "cd", "pip")
SHORTER = {"velo train cartpole": " trainer.total_timesteps=4_096"}  # the whole of it takes a minute
NEEDS_MODEL = ("model pull", "openai_model", "local_model")


def runnable(line: str) -> bool:
    return line.split()[0] not in SKIPPED and not any(word in line for word in NEEDS_MODEL)


def shell(command: str, cwd: Path) -> dict[str, Any]:
    """How a command is started: in a folder, with our programs on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"args": ["bash", "-c", command], "cwd": cwd, "env": {**os.environ, "PATH": path}, "text": True}


def typed(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(**shell(command, cwd), capture_output=True, timeout=DEADLINE_S)
    assert (done.returncode, command) == (0, command), done.stderr
    return done


@contextmanager
def terminal(command: str, cwd: Path) -> Iterator[list[str]]:
    """Servers that run in a terminal of their own, from "all ready" to Ctrl-C: what they said until then."""
    process = subprocess.Popen(**shell(f"exec {command}", cwd), stderr=subprocess.PIPE)
    alarm = threading.Timer(60, process.kill)  # ends the reading below
    alarm.start()
    said: list[str] = []
    with process:
        try:
            assert process.stderr is not None
            while not said or "all ready" not in said[-1]:
                said.append(process.stderr.readline().rstrip())
                assert said[-1], said
            alarm.cancel()
            yield said
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 0
        finally:
            alarm.cancel()
            process.kill()


def free_port(wanted: int = 0) -> int:
    """This port, or any if it is taken."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", wanted))
        except OSError:
            sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path: Path):
    (tmp_path / "env.yaml").write_text(f"head_server: {{port: {free_port()}}}\n")
    for body in blocks((ROOT / "README.md").read_text(), "bash"):
        with ExitStack() as terminals:
            for line in filter(runnable, command_lines(body)):
                if line.startswith(("ng_run", "velo run")):
                    terminals.enter_context(terminal(line, tmp_path))
                else:
                    more = next((more for start, more in SHORTER.items() if line.startswith(start)), "")
                    typed(line.partition("  #")[0] + more, tmp_path)


def fits(answer: Any, expected: Any) -> bool:
    """Whether an answer is what the page tells; `…` there stands for anything, as a key for any others."""
    if expected == "…":
        return True
    if isinstance(expected, dict) and isinstance(answer, dict):
        names = expected.keys() - {"…"}
        same = names <= answer.keys() if "…" in expected else names == answer.keys()
        return same and all(fits(answer[name], expected[name]) for name in names)
    if isinstance(expected, list) and isinstance(answer, list):
        return len(expected) == len(answer) and all(map(fits, answer, expected))
    return bool(answer == expected)


def reads(answer: str, expected: str) -> bool:
    """The same for text."""
    return re.fullmatch(re.escape(expected.strip()).replace("…", ".*"), answer.strip()) is not None


def moved(page: str, cwd: Path, *, always: bool = False) -> str:
    """The page with other ports, wherever they stand, if its own are taken here."""
    ports = {port: free_port(0 if always else port) for port in range(11000, 11005)}
    if ports[11000] != 11000:
        (cwd / "env.yaml").write_text(f"head_server: {{port: {ports[11000]}}}\n")
    return re.sub(r"\b1100[0-4]\b", lambda port: str(ports[int(port.group())]), page)


@pytest.mark.slow
def test_the_page_on_servers_does_as_it_says(tmp_path: Path):
    page = moved(read("serving.md"), tmp_path)
    start = section(page, "Two terminals")
    (tmp_path / "servers.yaml").write_text(blocks(start, "yaml")[0])
    serve, collect_rollouts = blocks(start, "bash")
    expected, account = blocks(start, "text")
    with terminal(serve, tmp_path) as said:
        timeless = [sorted(re.sub(r"\d+\.\d s", "", line) for line in lines) for lines in (said, expected.splitlines())]
        assert timeless[0] == timeless[1]
        assert set(account.splitlines()) <= set(typed(collect_rollouts, tmp_path).stderr.splitlines())
        table = blocks(section(page, "Status and the head"), "text")[0]
        columns = [
            [line.split()[:4] for line in text.splitlines()] for text in (typed("velo status", tmp_path).stdout, table)
        ]
        assert columns[0] == columns[1]
        compared = 0
        for (language, body), (kind, answer) in pairwise(FENCE.findall(page)):
            if language == "bash" and body.startswith("curl"):
                answered = typed(body, tmp_path).stdout
            elif language == "python":
                answered = typed(f"{sys.executable} - <<'END'\n{body}\nEND", tmp_path).stdout
            else:
                continue
            compared += 1
            if kind == "json":
                assert fits(json.loads(answered), json.loads(answer)), answered
            elif kind == "text":
                assert reads(answered, answer), answered
        assert compared >= 7


@pytest.mark.slow
def test_the_page_on_exports_works_as_pasted(tmp_path: Path):
    """From the rollouts to the reward function of verl, which is asked about every record of the second split."""
    page = moved(read("export.md"), tmp_path, always=True)
    for language in ("python", "yaml"):
        for body in blocks(page, language):
            if body.startswith("# "):
                (tmp_path / body.partition("\n")[0].removeprefix("# ")).write_text(body)
    for body in blocks(page.partition("## Formats")[0], "bash"):
        for line in command_lines(body):
            typed(line, tmp_path)
    serve, train = blocks(section(page, "A reward function for verl"), "bash")
    rewards = """
import re, sys, pyarrow.parquet as parquet
from verl_reward import compute_score
command = sys.argv[1]
url = re.search("url=([^ ]+)", command)[1]
for path in re.findall("_files=([^ ]+)", command):
    for row in parquet.read_table(path).to_pylist():
        truth = row["reward_model"]["ground_truth"]
        for text in (f"The answer is {truth}.", "The answer is 0."):
            print(path, compute_score(row["data_source"], text, truth, row["extra_info"], url=url))
"""
    (tmp_path / "rewards.py").write_text(rewards)
    with terminal(serve, tmp_path):
        lines = typed(f"{sys.executable} rewards.py {shlex.quote(train)}", tmp_path).stdout.splitlines()
    assert Counter(lines) == {
        f"data/{split}.parquet {reward}": tasks
        for split, tasks in (("train", 18), ("test", 2))
        for reward in (1.0, 0.0)
    }
