"""Servers as processes: started together, brought back when they die, and none left when the run ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import running
from velodrome.cli.main import main as velo
from velodrome.serving.process.limits import raise_file_limit
from velodrome.serving.process.server_process import Backoff

SECRET = "sk-a-secret-nobody-may-see"
NOISY = """
import sys


class Noisy:
    def __init__(self, api_key):
        print("my key is", api_key)
        sys.stderr.write("half a line, then the key: ")
        sys.stderr.write(api_key + "\\n")

    async def respond(self, request):
        raise RuntimeError("no luck")

    async def aclose(self): ...
"""
NOISY_BLOCK = """
noisy:
  responses_api_models:
    noisy:
      api_key: ${oc.env:NOISY_KEY}
"""
SLOW = """
import asyncio


class Slow:
    def __init__(self, begun, seconds):
        self.begun, self.seconds = begun, seconds

    async def run(self, task, *, verify=True):
        open(self.begun, "w").close()
        await asyncio.sleep(self.seconds)
        return {**task, "response": {"output": []}, "reward": 1.0}

    async def respond(self, request): ...
    async def deferrable(self): return True
    async def aclose(self): ...
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Four servers and a head, shared by the tests that leave them well."""
    cwd = tmp_path_factory.mktemp("run")
    config = running.calculator(cwd)
    running.write_component(cwd, "responses_api_models", "noisy", NOISY)
    (cwd / "noisy.yaml").write_text(NOISY_BLOCK)
    (cwd / "temp").mkdir()
    env = {"NOISY_KEY": SECRET, "TMPDIR": str(cwd / "temp")}
    with running.Session(cwd, config.replace("]", ",noisy.yaml]"), env=env) as result:
        yield result.up()
        assert result.ends(signal.SIGINT) == 0


@pytest.mark.slow
def test_every_server_answers_and_the_head_knows_them(session: Any):
    results = session.instances()
    assert {name: (each["type"], each["implementation"]) for name, each in results.items()} == {
        "calculator": ("resources_servers", "calculator"),
        "calculator_simple_agent": ("responses_api_agents", "simple_agent"),
        "policy_model": ("responses_api_models", "scripted_model"),
        "noisy": ("responses_api_models", "noisy"),
        "head_server": ("head_server", "head"),
    }
    assert {(each["status"], each["restarts"]) for each in results.values()} == {("ok", 0)}
    for name, each in results.items():
        status, report = running.http(f"{each['url']}/health")
        assert (status, report["name"], report["pid"]) == (200, name, each["pid"])
    status, result = running.http(f"{results['calculator_simple_agent']['url']}/run", running.TASK)
    assert (status, result["reward"], result["expected_answer"]) == (200, 1.0, "36")


@pytest.mark.slow
def test_no_secret_is_in_an_answer_a_log_an_argument_the_environment_or_a_file(session: Any):
    status, config = running.http(f"{session.head}/global_config_dict_yaml")
    assert (status, "api_key: '***'" in config) == (200, True)
    shown = [config, str(session.instances()), session.said]
    shown += [path.read_text() for path in (session.cwd / "results" / "logs").iterdir()]
    for pid in session.pids():
        shown += [Path(f"/proc/{pid}/{name}").read_text() for name in ("cmdline", "environ", "comm")]
    assert [text for text in shown if SECRET in text] == []
    log = (session.cwd / "results" / "logs" / "noisy.log").read_text()
    assert log == "my key is ***\nhalf a line, then the key: ***\n"
    assert list((session.cwd / "temp").iterdir()) == []


@pytest.mark.slow
def test_servers_that_are_killed_come_back_under_their_addresses_and_make_rollouts_as_before(session: Any):
    names = ["policy_model", "calculator", "calculator_simple_agent", "head_server"]
    before = session.instances()
    for name in names:
        os.kill(before[name]["pid"], signal.SIGKILL)
        assert running.gone(before[name]["pid"])
    pids = {}
    for name in names:
        status, health = running.http(f"{before[name]['url']}/health")  # it waits in the socket until there is a server
        assert (status, health["pid"] != before[name]["pid"]) == (200, True)
        session.expect(f"{name}: ended (signal SIGKILL); starting again in 0.2 s")
        session.expect(f"{name}: restarted (pid {health['pid']})")
        pids[name] = health["pid"]
    after = session.instances()
    for name in names:
        fields = ("url", "pid", "status", "restarts", "last_exit")
        assert [after[name][field] for field in fields] == [before[name]["url"], pids[name], "ok", 1, "signal SIGKILL"]
    assert running.http(f"{after['calculator_simple_agent']['url']}/run", running.TASK)[1]["reward"] == 1.0


@pytest.mark.slow
def test_the_death_of_the_supervisor_ends_every_worker(tmp_path: Path):
    with running.Session(tmp_path, running.calculator(tmp_path)) as session:
        pids = session.up().pids()
        assert session.ends(signal.SIGKILL) == -signal.SIGKILL
        assert [pid for pid in pids if not running.gone(pid)] == []


@contextmanager
def slow_agent(cwd: Path, *, seconds: float) -> Iterator[tuple[Any, Any]]:
    """A run with one agent that is in the middle of a request."""
    begun = cwd / "begun"
    os.mkfifo(begun)
    running.write_component(cwd, "responses_api_agents", "slow", SLOW)
    settings = f"{{begun: '{begun}', seconds: {seconds}}}"
    (cwd / "slow.yaml").write_text(f"slow:\n  responses_api_agents:\n    slow: {settings}\n")
    with (
        ThreadPoolExecutor(1) as pool,
        running.Session(cwd, "+config_paths=[slow.yaml]", "+drain_s=3600") as session,
    ):
        url = session.up().instances()["slow"]["url"]
        answer = pool.submit(running.http, f"{url}/run", running.TASK)
        begun.open().close()  # opens when the agent opens its end
        yield session, answer


@pytest.mark.slow
def test_asked_to_stop_it_lets_what_is_in_flight_finish_and_leaves_nothing(tmp_path: Path):
    with slow_agent(tmp_path, seconds=0.5) as (session, answer):
        pids = session.pids()
        assert session.ends(signal.SIGTERM) == 0
        assert answer.result(running.LIMIT_S)[0] == 200
        assert [pid for pid in pids if not running.gone(pid)] == []


@pytest.mark.slow
def test_asked_twice_it_ends_at_once(tmp_path: Path):
    with slow_agent(tmp_path, seconds=7200) as (session, answer):
        pids = session.pids()
        session.process.send_signal(signal.SIGINT)
        session.expect("stopping")
        assert session.ends(signal.SIGTERM) == 0  # another signal: the same one within a second is a copy
        assert answer.exception(running.LIMIT_S) is not None
        assert [pid for pid in pids if not running.gone(pid)] == []


@pytest.mark.slow
def test_a_server_that_does_not_start_is_reported_with_its_log_and_ends_the_rest(tmp_path: Path):
    code = "import os\nprint('the disk ate my weights', flush=True)\nos._exit(7)\n"
    running.write_component(tmp_path, "responses_api_models", "broken", code)
    (tmp_path / "broken.yaml").write_text("broken:\n  responses_api_models:\n    broken: {}\n")
    config = running.calculator(tmp_path).replace("]", ",broken.yaml]")
    with running.Session(tmp_path, config) as session:
        assert session.ends() == 1
    assert "broken: ended with exit code 7" in session.said
    assert session.said.endswith("the disk ate my weights\n")


def test_a_mistake_in_a_block_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("m: {responses_api_models: {scripted_model: {answers: 7, latency: 1}}}\n")
    assert velo(["run", "+config_paths=[bad.yaml]"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("velo: bad.yaml: m") for line in lines] == [True, True]


@pytest.mark.slow
def test_workers_share_one_address_and_one_may_die(tmp_path: Path):
    running.calculator(tmp_path)
    with running.Session(tmp_path, "+config_paths=[model.yaml]", "+num_workers=3") as session:
        result = session.up().instances()
        model = result["policy_model"]
        assert (len(set(model["pids"])), model["pid"]) == (3, model["pids"][0])

        os.kill(model["pids"][1], signal.SIGKILL)
        assert running.gone(model["pids"][1])
        for _ in range(16):
            assert running.http(f"{model['url']}/v1/responses", {"input": "?"})[0] == 200
        session.expect("policy_model worker 1: restarted")
        after = session.instances()["policy_model"]
        assert after["pids"][::2] == model["pids"][::2]
        assert (after["pids"][1] != model["pids"][1], after["restarts"], after["status"]) == (True, 1, "ok")
        assert session.ends(signal.SIGINT) == 0


@pytest.mark.slow
def test_in_dev_the_servers_whose_code_changes_restart_and_the_others_do_not(tmp_path: Path):
    app = running.write_component(tmp_path, "responses_api_models", "noisy", NOISY)
    (tmp_path / "noisy.yaml").write_text("noisy:\n  responses_api_models:\n    noisy: {api_key: first-key}\n")
    with running.Session(tmp_path, running.calculator(tmp_path).replace("]", ",noisy.yaml]"), "--dev") as session:
        before = session.up().instances()
        session.expect("watching")
        app.write_text(NOISY.replace("my key", "MY KEY"))
        session.expect("changed: app.py; restarting: noisy")
        session.expect("noisy: restarted")
        after = session.instances()
        assert {name for name in before if before[name]["pid"] != after[name]["pid"]} == {"noisy"}
        assert session.ends(signal.SIGINT) == 0


def test_the_wait_before_a_restart_doubles_up_to_a_limit_and_health_resets_it():
    backoff = Backoff()
    assert [backoff.delay_s(0.0) for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert [backoff.delay_s(29.9), backoff.delay_s(30.0), backoff.delay_s(0.0)] == [10.0, 0.2, 0.4]


def test_the_limit_of_open_files_is_raised_and_never_lowered():
    reached = raise_file_limit()
    assert raise_file_limit(16) == reached
