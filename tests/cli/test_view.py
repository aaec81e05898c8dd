"""`velo view` at the command line: mistakes, the terminal, copies, and a server that comes and goes."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from made_runs import HOSTILE, hostile_row, make_run, write
from patience import DEADLINE_S

from velodrome.cli.main import main

VELO = [sys.executable, "-m", "velodrome.cli.main"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "r.jsonl", tasks=10, repeats=2, failed=3)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--terminal"], "no rollouts: give a file, as in velo view rollouts.jsonl"),
        (
            ["none.jsonl"],
            "none.jsonl: no such file",
        ),
        (["rr.jsonl"], 'rr.jsonl: no such file; did you mean "r.jsonl"?'),
        ([".", "--export", "x"], ".: not a regular file"),
        (["r.failures.jsonl"], "r.failures.jsonl: a failures file"),
        (["r.jsonl", "--where", "reward<1"], "--where and --limit go with --export or --terminal"),
        (["r.jsonl", "--terminal", "--export", "x"], "--terminal and --export: give one of them"),
        (["r.jsonl", "r.jsonl", "--terminal"], "--terminal browses one file"),
        (["r.jsonl", "--export", "x", "--where", "rewrd<1"], 'filter, at 1: no field "rewrd"'),
        (["r.jsonl", "--terminal", "--where", "reward<"], 'nothing after "<"'),
        (["r.jsonl", "--host", "0.0.0.0"], "0.0.0.0 can be reached from other machines, which wants a token"),
        (["r.jsonl", "--host", "no.such.host.invalid"], "no address for the host"),
        (["+jsonl=r.jsonl"], "+jsonl=r.jsonl: no such setting; there are +jsonl_fpath, +server_host, +server_port"),
        (
            ["+jsonl_fpath=none.jsonl"],
            "none.jsonl: no such file",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], told: str
):
    monkeypatch.chdir(run.parent)
    monkeypatch.delenv("VELODROME_TOKEN", raising=False)
    assert main(["view", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith("velo: ")) == ("", 1, True)
    assert told in err


@pytest.mark.parametrize("words", [["--port", "70000"], ["--port", "x"], ["--limit", "0"], ["--nonsense"]])
def test_a_bad_option_is_a_mistake(run: Path, capsys: pytest.CaptureFixture[str], words: list[str]):
    assert main(["view", str(run), *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.endswith(" (see velo view --help)\n")) == ("", 1, True)


def test_a_port_that_is_taken_is_a_mistake(run: Path, capsys: pytest.CaptureFixture[str]):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["view", str(run), "--port", str(taken.getsockname()[1])]) == 2
    assert "give it another port" in capsys.readouterr().err


@contextmanager
def served(*words: str, **environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A viewer in a process of its own, and its address."""
    with subprocess.Popen(
        [*VELO, "view", *words], stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        try:
            assert process.stderr
            line = process.stderr.readline()
            result = re.search(r"http://\S+/", line)
            assert result, line + process.stderr.read()
            yield result[0], process
        finally:
            process.kill()


def fetched(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_viewer_answers_until_it_is_told_to_stop(run: Path, end: signal.Signals):
    with served(f"+jsonl_fpath={run}") as (url, process):
        assert url.startswith("http://127.0.0.1:")
        status, page = fetched(url)
        assert (status, "20 requested = " in re.sub(r"<[^>]+>", "", page)) == (200, True)
        assert fetched(url, Host="evil.example")[0] == 421
        process.send_signal(end)
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr
        assert process.stderr.read() == ""


def test_a_token_in_the_environment_is_asked_for(run: Path):
    with served(str(run), VELODROME_TOKEN="s3cret") as (url, _):
        assert fetched(url)[0] == 401
        assert fetched(url, Authorization="Bearer s3cret")[0] == 200


def test_a_copy_is_written_and_said(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["view", str(run), "--export", str(tmp_path / "copy"), "--where", "reward>=0", "--limit", "4"]) == 0
    out, err = capsys.readouterr()
    pages = len(list((tmp_path / "copy").glob("*.html")))
    more = "more of them match: --limit takes more"
    assert (out, err) == ("", f"{tmp_path / 'copy' / 'index.html'}: 4 rollouts on {pages} pages; {more}\n")
    assert (tmp_path / "copy" / "rollouts.html").exists()


class Screen:
    """A person at a real terminal: presses keys, and reads what was drawn since."""

    def __init__(self, *words: str) -> None:
        self._master, slave = pty.openpty()
        environment = {**os.environ, "COLUMNS": "100", "LINES": "40", "TERM": "xterm-256color"}
        self._process = subprocess.Popen(
            [*VELO, "view", *words, "--terminal"], stdin=slave, stdout=slave, stderr=slave, env=environment
        )
        os.close(slave)
        self.drawn = ""

    def until(self, text: str) -> None:
        result = b""
        while text not in result.decode("utf-8", "replace"):
            ready, _, _ = select.select([self._master], [], [], 60)
            assert ready, f"{text} was not drawn: {result[-2000:]!r}"
            result += os.read(self._master, 65536)
        self.drawn += result.decode("utf-8", "replace")

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def end(self) -> int:
        self.press("q")
        try:
            while os.read(self._master, 65536):
                pass
        except OSError:  # the other side is closed
            pass
        return self._process.wait(DEADLINE_S)


def test_a_hostile_text_does_nothing_to_a_terminal(tmp_path: Path):
    path = write(tmp_path / "h.jsonl", [hostile_row(f"{HOSTILE}/0"), {"output": [[[1]]], "meta": {"key": "odd/0"}}])
    with Screen(str(path)) as screen:
        screen.until("2 kept")
        screen.press("\r")
        screen.until("u001b[2J")
        assert screen.end() == 0
    assert re.findall("[\x00\u202a-\u202e\u2066-\u2069\u200b]", screen.drawn) == []
    assert "\x1b[2J\x07" not in screen.drawn


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_what_is_not_a_terminal_is_said(run: Path, term: str):
    done = subprocess.run(
        [*VELO, "view", str(run), "--terminal"],
        input="",
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, "TERM": term},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "velo show" in done.stderr
