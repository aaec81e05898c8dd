"""`velo run`, `velo status`, and collecting with servers and without, as a user types it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support import running

TOKEN = "a-token-of-ours"

pytestmark = pytest.mark.slow  # real servers


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Three servers with a token, started with every inert flag of the seeds."""
    cwd = tmp_path_factory.mktemp("run")
    rows = [{"id": str(number), **running.TASK} for number in range(8)]
    (cwd / "t.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    (cwd / "env.yaml").write_text(f"server_token: {TOKEN}\n")
    flags = ("+profiling_enabled=true", "+profiling_results_dirpath=results/profiling", "+cors_origins=['http://ui']")
    with running.Session(cwd, running.calculator(cwd), *flags) as servers:
        yield servers.up()
        assert servers.ends(signal.SIGTERM) == 0
        assert servers.said.endswith("\nstopped\n")


@pytest.fixture
def with_servers(session: Any, velo: Any) -> Callable[..., Any]:
    """Runs a verb where the servers run; `collect` reads t.jsonl."""

    def run(verb: str, *argv: str) -> Any:
        tasks = ("+input_jsonl_fpath=t.jsonl",) if verb == "collect" else ()
        return velo(verb, f"+head_server.port={session.port}", *tasks, *argv, cwd=session.cwd)

    return run


def test_with_servers_running_a_collection_needs_no_config(session: Any, with_servers: Any):
    done = with_servers("collect", "+agent_name=calculator_simple_agent", "+output_jsonl_fpath=served.jsonl")
    assert (done.code, orjson.loads(done.out)["reward"]) == (0, 1.0)
    first = done.err.splitlines()[0]
    assert f"127.0.0.1:{session.port}: calculator, calculator_simple_agent, policy_model" in first


def test_the_same_config_given_too_uses_the_servers_and_resumes_what_was_made_embedded(session: Any, with_servers: Any):
    argv = (running.calculator(session.cwd), "+output_jsonl_fpath=both.jsonl")
    first = with_servers("collect", *argv, "+embedded=true", "+limit=4")
    assert (first.code, "servers" in first.err) == (0, False)
    second = with_servers("collect", *argv)
    assert second.code == 0, second.err
    assert "using the servers" in second.err
    assert "both.jsonl: 4 of 8 rollouts are there already" in second.err


def test_a_deferred_collection_is_scored_by_the_servers_with_or_without_a_config(session: Any, with_servers: Any):
    """The servers that run have a model of this name with other settings; scoring asks none."""
    deferred = with_servers("collect", "+output_jsonl_fpath=d.jsonl", "+defer_verification=true")
    assert deferred.code == 0, deferred.err
    (session.cwd / "other.yaml").write_text(running.MODEL.replace("36", "another"))
    other = (f"+config_paths=[{running.CALCULATOR},other.yaml]", "+output_jsonl_fpath=f.jsonl")
    alone = (f"+config_paths=[{running.CALCULATOR}]", "+output_jsonl_fpath=e.jsonl")
    (session.cwd / "d.jsonl").rename(session.cwd / "it's d.jsonl")
    for words in ((), alone, other):
        done = with_servers("verify", "it's d.jsonl", *words)
        assert (done.code, orjson.loads(done.out)["reward"]) == (0, 1.0), done.err
        assert f"127.0.0.1:{session.port}: calculator" in done.err.splitlines()[0]
    refused = with_servers("verify", "it's d.jsonl", *other, "+calculator.resources_servers.calculator.strict=true")
    assert (refused.code, "calculator: the server that runs at" in refused.err) == (2, True)


def test_status_shows_every_server(with_servers: Any):
    done = with_servers("status")
    assert (done.code, done.err) == (0, "")
    lines = [line.split()[:3] for line in done.out.splitlines()]
    assert lines == [
        ["name", "type", "status"],
        ["calculator", "resources_servers", "ok"],
        ["calculator_simple_agent", "responses_api_agents", "ok"],
        ["policy_model", "responses_api_models", "ok"],
        ["head_server", "head_server", "ok"],
    ]
    report = orjson.loads(with_servers("status", "--json").out)
    assert [each["name"] for each in report] == [line[0] for line in lines[1:]]


def test_who_has_no_token_is_refused(session: Any, velo: Any):
    for url in [session.head, *(each["url"] for each in session.instances(TOKEN).values())]:
        assert running.http(f"{url}/")[0] == 401
        assert running.http(f"{url}/", token="a-token-of-theirs")[0] == 401
        assert running.http(f"{url}/health")[0] == 200
    done = velo("status", f"+head_server.port={session.port}")
    assert (done.code, done.out, "VELODROME_TOKEN" in done.err) == (2, "", True)


def test_the_token_is_in_no_argument_no_environment_and_no_answer(session: Any):
    servers = session.instances(TOKEN)
    shown = [str(servers), str(running.http(f"{session.head}/global_config_dict_yaml", token=TOKEN))]
    shown += [
        Path(f"/proc/{each['pid']}/{name}").read_text() for each in servers.values() for name in ("cmdline", "environ")
    ]
    assert [text for text in shown if TOKEN in text] == []


def test_beyond_loopback_without_a_token_every_server_is_named_and_none_started(velo: Any, tmp_path: Path):
    done = velo(
        "run", running.calculator(tmp_path), "+default_host=0.0.0.0", f"+head_server.port={running.free_port()}"
    )
    assert (done.code, done.out) == (2, "")
    assert ["VELODROME_TOKEN" in line for line in done.err.splitlines()] == [True] * 3


def test_without_servers_a_collection_is_embedded_and_says_so(velo: Any, tmp_path: Path):
    (tmp_path / "t.jsonl").write_bytes(orjson.dumps(running.TASK) + b"\n")
    place = f"127.0.0.1:{(port := running.free_port())}"
    argv = ("collect", f"+head_server.port={port}", "+input_jsonl_fpath=t.jsonl", "+output_jsonl_fpath=r.jsonl")
    done = velo(*argv, running.calculator(tmp_path))
    assert (done.code, f"{place}: running embedded" in done.err.splitlines()[0]) == (0, True)
    without = velo(*argv)
    assert (without.code, place in without.err, "config_paths" in without.err) == (2, True, True)
    status = velo("status", f"+head_server.port={port}")
    assert (status.code, status.out, place in status.err) == (1, "", True)
