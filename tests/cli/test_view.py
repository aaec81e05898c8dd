"""`velo view` at the command line: mistakes, copies, and a server that comes and goes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.made_runs import make_run
from tests.support.patience import DEADLINE_S
from velodrome.cli.main import main

VELO = [sys.executable, "-m", "velodrome.cli.main"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "r.jsonl", tasks=10, repeats=2, failed=3)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--export", "x"], "velo view rollouts.jsonl"),
        (["r.jsonl", "r.jsonl", "--export", "x"], "--export copies one file"),
        (["rr.jsonl"], 'did you mean "r.jsonl"?'),
        ([".", "--export", "x"], ".: "),
        (["r.jsonl", "--where", "reward<1"], "--where"),
        (["r.jsonl", "--host", "0.0.0.0"], "token"),
        (["r.jsonl", "--host", "no.such.host.invalid"], "host"),
        (["+jsonl_fpath=none.jsonl"], "none.jsonl: no such file"),
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


def test_a_port_that_is_taken_is_a_mistake(run: Path, capsys: pytest.CaptureFixture[str]):
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


def fetched(url: str, **headers: str) -> httpx2.Response:
    return httpx2.get(url, headers=headers, follow_redirects=True)


def test_a_copy_is_written_and_said(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["view", str(run), "--export", str(tmp_path / "copy"), "--where", "reward>=0", "--limit", "4"]) == 0
    out, err = capsys.readouterr()
    pages = len(list((tmp_path / "copy").glob("*.html")))
    more = "more of them match: --limit takes more"
    assert (out, err) == ("", f"{tmp_path / 'copy' / 'index.html'}: 4 rollouts on {pages} pages; {more}\n")
    assert (tmp_path / "copy" / "rollouts.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("end", "token"), [(signal.SIGINT, ""), (signal.SIGTERM, "s3cret")])
def test_a_viewer_answers_who_has_its_token_until_it_is_told_to_stop(run: Path, end: signal.Signals, token: str):
    with served(f"+jsonl_fpath={run}", VELODROME_TOKEN=token) as (url, process):
        assert url.startswith("http://127.0.0.1:")
        assert fetched(url).status_code == (401 if token else 200)
        page = fetched(url, **({"Authorization": f"Bearer {token}"} if token else {}))
        assert (page.status_code, "20 requested = " in re.sub(r"<[^>]+>", "", page.text)) == (200, True)
        assert fetched(url, Host="evil.example").status_code == (401 if token else 421)
        process.send_signal(end)
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr
        assert process.stderr.read() == ""
