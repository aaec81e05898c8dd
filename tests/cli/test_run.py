"""`velo run`, `velo status`, and collecting with servers and without, as a user types it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
import running
from patience import DEADLINE_S

from velodrome.cli.main import main
from velodrome.cli.status import table


def velo(cwd: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "velodrome.cli.main", *argv]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Three servers with a token, started with every inert flag of the seeds."""
    cwd = tmp_path_factory.mktemp("run")
    rows = [{"id": str(number), **running.TASK} for number in range(8)]
    (cwd / "t.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    (cwd / "env.yaml").write_text("server_token: a-token-of-ours\n")
    flags = ("+profiling_enabled=true", "+profiling_results_dirpath=results/profiling", "+cors_origins=['http://ui']")
    with running.Session(cwd, running.calculator(cwd), *flags) as found:
        yield found.up()
        assert found.ends(signal.SIGTERM) == 0


def collect(session: Any, verb: str, *argv: str) -> subprocess.CompletedProcess[str]:
    return velo(session.cwd, verb, f"+head_server.port={session.port}", *argv)


def test_with_servers_running_a_collection_needs_no_config(session: Any):
    done = collect(
        session,
        "collect",
        "+agent_name=calculator_simple_agent",
        "+input_jsonl_fpath=t.jsonl",
        "+output_jsonl_fpath=served.jsonl",
    )
    assert (done.returncode, orjson.loads(done.stdout)["reward"]) == (0, 1.0)
    assert done.stderr.startswith(
        f"using the servers that run at 127.0.0.1:{session.port}: calculator, calculator_simple_agent, policy_model\n"
    )


def test_the_same_config_given_too_uses_the_servers_and_resumes_what_was_made_embedded(session: Any):
    argv = (running.calculator(session.cwd), "+input_jsonl_fpath=t.jsonl", "+output_jsonl_fpath=both.jsonl")
    first = collect(session, "collect", *argv, "+embedded=true", "+limit=4")
    assert (first.returncode, "servers" in first.stderr) == (0, False)
    second = collect(session, "collect", *argv)
    assert second.returncode == 0, second.stderr
    assert "using the servers" in second.stderr
    assert "both.jsonl: 4 of 8 rollouts are there already" in second.stderr


def test_a_deferred_collection_is_verified_by_the_servers(session: Any):
    deferred = collect(
        session, "collect", "+input_jsonl_fpath=t.jsonl", "+output_jsonl_fpath=d.jsonl", "+defer_verification=true"
    )
    assert deferred.returncode == 0, deferred.stderr
    done = collect(session, "verify", "d.jsonl")
    assert (done.returncode, orjson.loads(done.stdout)["reward"]) == (0, 1.0)


def test_scoring_needs_no_model_and_minds_none_that_runs(session: Any):
    """The servers that run have a model of this name with other settings; nobody asks it."""
    deferred = collect(
        session, "collect", "+input_jsonl_fpath=t.jsonl", "+output_jsonl_fpath=e.jsonl", "+defer_verification=true"
    )
    assert deferred.returncode == 0, deferred.stderr
    (session.cwd / "other.yaml").write_text(running.MODEL.replace("36", "another"))
    alone = collect(session, "verify", "e.jsonl", f"+config_paths=[{running.CALCULATOR}]")
    assert (alone.returncode, orjson.loads(alone.stdout)["reward"]) == (0, 1.0), alone.stderr
    assert alone.stderr.startswith(f"using the servers that run at 127.0.0.1:{session.port}: calculator\n")
    words = (f"+config_paths=[{running.CALCULATOR},other.yaml]", "+output_jsonl_fpath=f.jsonl")
    beside = collect(session, "verify", "e.jsonl", *words)
    assert (beside.returncode, orjson.loads(beside.stdout)["reward"]) == (0, 1.0), beside.stderr
    refused = collect(session, "verify", "e.jsonl", *words, "+calculator.resources_servers.calculator.strict=true")
    assert refused.returncode == 2
    assert "calculator: the server that runs at" in refused.stderr


def test_status_shows_every_server(session: Any):
    done = collect(session, "status")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split()[:3] for line in done.stdout.splitlines()]
    assert lines == [
        ["name", "type", "status"],
        ["calculator", "resources_servers", "ok"],
        ["calculator_simple_agent", "responses_api_agents", "ok"],
        ["policy_model", "responses_api_models", "ok"],
        ["head_server", "head_server", "ok"],
    ]
    told = orjson.loads(collect(session, "status", "--json").stdout)
    assert [each["name"] for each in told] == [line[0] for line in lines[1:]]


def test_who_has_no_token_is_refused(session: Any, tmp_path: Path):
    for url in [session.head, *(each["url"] for each in session.instances("a-token-of-ours").values())]:
        assert running.http(f"{url}/")[0] == 401
        assert running.http(f"{url}/", token="a-token-of-theirs")[0] == 401
        assert running.http(f"{url}/health")[0] == 200
    done = velo(tmp_path, "status", f"+head_server.port={session.port}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"velo: the head server at 127.0.0.1:{session.port} wants another token: "
        "set VELODROME_TOKEN, or server_token in env.yaml\n"
    )


def test_the_token_is_in_no_argument_no_environment_and_no_answer(session: Any):
    told = session.instances("a-token-of-ours")
    shown = [str(told), str(running.http(f"{session.head}/global_config_dict_yaml", token="a-token-of-ours"))]
    shown += [
        Path(f"/proc/{each['pid']}/{name}").read_text() for each in told.values() for name in ("cmdline", "environ")
    ]
    assert [text for text in shown if "a-token-of-ours" in text] == []


def test_a_second_run_on_the_same_head_port_is_one_line(session: Any):
    done = collect(session, "run", running.calculator(session.cwd))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"velo: head_server: cannot listen on 127.0.0.1:{session.port} (Address already in use); give it another port\n"
    )


def test_beyond_loopback_without_a_token_every_server_is_named_and_none_started(tmp_path: Path):
    port = running.free_port()
    done = velo(
        tmp_path, "run", running.calculator(tmp_path), "+default_host=0.0.0.0", f"+head_server={{port: {port}}}"
    )
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert all("wants a token: set server_token (env.yaml), or VELODROME_TOKEN" in line for line in lines)


def test_without_servers_a_collection_is_embedded_and_says_so(tmp_path: Path):
    (tmp_path / "t.jsonl").write_bytes(orjson.dumps(running.TASK) + b"\n")
    port = running.free_port()
    argv = ("collect", f"+head_server.port={port}", "+input_jsonl_fpath=t.jsonl", "+output_jsonl_fpath=r.jsonl")
    done = velo(tmp_path, *argv, running.calculator(tmp_path))
    assert done.returncode == 0
    assert done.stderr.startswith(f"no servers run at 127.0.0.1:{port}: running embedded, all in this process\n")
    without = velo(tmp_path, *argv)
    assert (without.returncode, without.stderr) == (
        2,
        f"velo: no servers run at 127.0.0.1:{port}, and no config_paths are given: start them with velo run, "
        "or give +config_paths=[…] to run without servers\n",
    )


def test_status_without_servers_is_one_line(tmp_path: Path):
    port = running.free_port()
    done = velo(tmp_path, "status", f"+head_server.port={port}")
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        f"velo: no servers run: no head server answers at 127.0.0.1:{port} (start them with velo run)\n",
    )


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "config_paths"),
        (["+num_worker=2"], "num_workers"),
        (["+cors_origins=all"], "cors_origins"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: list[str], said: str
):
    monkeypatch.chdir(tmp_path)
    assert main(["run", *argv]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert said in err


def test_a_table_is_aligned_and_lists_the_pids_of_workers():
    rows = [{"name": "a", "type": "t", "status": "ok", "url": "u", "pid": [1, 2], "uptime_s": 3.7, "restarts": 0}]
    assert table(rows) == (
        "name  type  status  url  pid  uptime_s  restarts\na     t     ok      u    1,2  4         0"
    )
