"""Environments of others, with their real packages, through `velo env add` and `velo collect` to the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.interop.programs import environment
from tests.interop.servers import serving
from tests.support.patience import DEADLINE_S
from tests.support.running import free_port
from velodrome.cli.main import main
from velodrome.connect.adapted import AdaptedEnvironment
from velodrome.errors import TaskError, ToolError, VerifyError

Json = dict[str, Any]
THEIRS = Path(__file__).parent / "theirs"


def called(name: str, **arguments: Any) -> Json:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, in which packages of the tests can be imported by others."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def add(source: str, *flags: str) -> None:
    assert main(["env", "add", source, *flags]) == 0


def collect(name: str, tasks: Path | str, output: str = "rollouts.jsonl", *more: str) -> int:
    """The exit code of `velo collect` with a scripted model."""
    files = [f"+input_jsonl_fpath={tasks}", f"+output_jsonl_fpath={output}", "+overwrite=true", "+embedded=true"]
    blocks = f"+config_paths=[resources_servers/{name}/configs/{name}.yaml,model.yaml]"
    return main(["collect", blocks, f"+agent_name={name}_simple_agent", *files, *more])


def collected(here: Path, name: str, answers: list[Any], tasks: list[Json] | None = None) -> list[Json]:
    """The rollouts of an environment's example tasks, or of these."""
    model = {"policy_model": {"responses_api_models": {"scripted_model": {"entrypoint": "app.py", "answers": answers}}}}
    (here / "model.yaml").write_text(yaml.safe_dump(model))
    tasks_file = here / "resources_servers" / name / "data" / "example.jsonl"
    if tasks is not None:
        tasks_file = here / "tasks.jsonl"
        tasks_file.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    assert collect(name, tasks_file) == 0, (here / "rollouts.failures.jsonl").read_text()
    rows = [json.loads(line) for line in (here / "rollouts.jsonl").read_text().splitlines()]
    return sorted(rows, key=lambda row: str(row["id"]))


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The interpreter of a program's environment in which the packages of the tests are installed too."""

    def interpreter(name: str) -> str:
        python = environment(name)
        launcher = tmp_path_factory.mktemp("bin") / "python"
        launcher.write_text(f'#!/bin/sh\nPYTHONPATH="{THEIRS}" exec "{python}" "$@"\n')
        launcher.chmod(0o755)
        return str(launcher)

    return interpreter


@pytest.mark.slow
def test_a_taskset_of_verifiers_is_played_with_its_tools_and_scored_by_its_rewards(here: Path, installed: Any):
    python = installed("verifiers")
    add("verifiers:sums_taskset", "--python", python, "--arguments", '{"count": 2}')
    rows = collected(here, "sums_taskset", [called("sums_add", a=1, b=10), called("sums_calls"), "It is 11"])
    assert [(row["id"], row["reward"], row["right"], row["used"], row["turns"]) for row in rows] == [
        ("sum-1", 1.0, 1.0, 1.0, 3.0),
        ("sum-2", 0.5, 0.0, 1.0, 3.0),
    ]
    assert [row["reward"] for row in collected(here, "sums_taskset", ["It is 12"])] == [0.0, 0.5]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "answers", "rewards"),
    [
        ("single", ["It is 11"], [1.0, 0.0]),
        ("tools", [called("add", a=1, b=10), "It is {tool_result}"], [1.0, 0.0]),
        ("game", ["5", "9", "7"], [1 / 3]),
        ("game", ["1", "2", "3", "4"], [0.0]),
    ],
)
def test_an_environment_of_earlier_verifiers_is_scored_by_its_rubric(
    here: Path, installed: Any, kind: str, answers: list[Any], rewards: list[float]
):
    python = installed("verifiers_tool_env")
    add("verifiers:old_envs", "--name", f"old_{kind}", "--python", python, "--arguments", json.dumps({"kind": kind}))
    rows = collected(here, f"old_{kind}", answers)
    assert [row["reward"] for row in rows] == rewards
    if kind == "game":
        assert rows[0]["truncated"] is (rewards == [0.0])


@pytest.fixture
def openenv(tmp_path: Path) -> Any:
    def server(kind: str) -> Any:
        port = free_port()
        script = str(THEIRS / "openenv_server.py")
        return serving("openenv", script, kind, str(port), port=port, ready="/health", log=tmp_path / "openenv.log")

    return server


def test_a_server_of_openenv_is_played_by_turns(here: Path, openenv: Any):
    with openenv("guess") as url:
        add(f"openenv:{url}", "--name", "guess", "--tasks", "3")
        rows = collected(here, "guess", ["1", "2", "3"])
        assert [(row["id"], row["reward"], row["step_rewards"]) for row in rows] == [
            ("seed-0", 1.0, [1.0]),
            ("seed-1", 0.75, [-0.25, 1.0]),
            ("seed-2", 0.5, [-0.25, -0.25, 1.0]),
        ]
        assert all(row["terminated"] for row in rows)
        dying = "+policy_model.responses_api_models.scripted_model.answers=[die]"
        died = collect("guess", "resources_servers/guess/data/example.jsonl", "died.jsonl", dying)
    failures = [json.loads(line) for line in (here / "died.failures.jsonl").read_text().splitlines()]
    assert died != 0
    assert {row["boundary"] for row in failures} == {"tool"}


def test_an_action_of_several_fields_is_read_from_json_and_refusals_are_told_to_the_model(
    here: Path, openenv: Any, capsys: pytest.CaptureFixture[str]
):
    with openenv("walk") as url:
        assert main(["env", "add", f"nemo_gym:{url}"]) == 2
        assert "has no /verify" in capsys.readouterr().err
        add(f"openenv:{url}", "--name", "walk", "--tasks", "1")
        wrong = '{"steps": "far", "north": true}'
        (row,) = collected(here, "walk", ["home", wrong, 'I go: {"steps": 3, "north": true}'])
    said = [text for text in (json.dumps(message) for message in row["output"]) if "error:" in text]
    assert row["reward"] == 1.0
    assert "answer with a JSON object" in said[0]
    assert "steps" in said[1]


def test_a_command_of_mcp_becomes_a_block(here: Path):
    server = f"exec {sys.executable} -m velodrome.environments.mcp_tools.mcp_example_server"
    source = f'mcp:sh -c "{server} \\"\\""'
    add(source, "--name", "warehouse")
    (row,) = collected(here, "warehouse", [called("list_items"), "There are seven."])
    assert (row["reward"], row["calls_made"]) == (1.0, 1.0)
    block = here / "resources_servers" / "warehouse" / "configs" / "warehouse.yaml"
    block.write_text("mine: {}\n")
    assert main(["env", "add", source, "--name", "warehouse"]) == 2
    assert block.read_text() == "mine: {}\n"
    add(source, "--name", "warehouse", "--overwrite")


@pytest.mark.parametrize(
    ("source", "flags", "line"),
    [
        ("verifiers:x", ["--python", "no/such/python"], "there is no interpreter no/such/python"),
        ("verifiers:no_such_package", ["--python", "PYTHON"], "no_such_package"),
        ("openenv:http://127.0.0.1:9", [], "no OpenEnv server answers"),
        ("openenv:127.0.0.1", [], "openenv_url is an http:// or https:// URL"),
        ("nemo_gym:http://127.0.0.1:9", [], "no server answers"),
        ("nemo_gym:no/folder", [], "nemo_gym:no/folder: no such folder"),
        ("gymnasium:NoSuchThing-v0", [], "gymnasium:NoSuchThing-v0"),
        ("gymnasium:Pendulum-v1", [], "'Pendulum-v1' has the actions Box"),
        ("mcp:no-such-program", [], "there is no program 'no-such-program'"),
        ("mcp:false", [], "did not start"),
        ("pip:verifiers", [], "is not one of verifiers:…, openenv:…"),
        ("verifiers:x", ["--arguments", "[]"], "--arguments must be a JSON object"),
        ("verifiers:x", ["--name", "a/b"], "cannot be the name of a folder"),
    ],
)
def test_what_cannot_be_added_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], source: str, flags: list[str], line: str
):
    flags = [str(environment("verifiers")) if flag == "PYTHON" else flag for flag in flags]
    assert main(["env", "add", source, *flags]) == 2
    said = [each for each in capsys.readouterr().err.splitlines() if each.startswith("velo: ")]
    assert len(said) == 1
    assert line in said[0]
    assert not (here / "resources_servers").exists()


def wheel(folder: Path, name: str, files: dict[str, str]) -> None:
    """A package without dependencies, as an index has it."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-1.0.dist-info"
    about = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in {**files, **about}.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "")


def test_a_package_gets_a_virtual_environment_of_its_own(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    index = here / "index"
    wheel(index, "verifiers", {"verifiers/__init__.py": ""})
    wheel(index, "small_env", {"small_env.py": "import numpy_is_not_here"})
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, str(index))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    assert main(["env", "add", "verifiers:small-env"]) == 2
    error = capsys.readouterr().err
    assert "numpy_is_not_here" in error
    python = here / ".velodrome" / "venvs" / "small_env" / "bin" / "python"
    code = "import importlib.metadata as m; print(m.version('small_env'))"
    assert subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout == "1.0\n"
    assert main(["env", "add", "verifiers:not-in-the-index"]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("velo: ")]
    assert len(said) == 1
    assert said[0].startswith("velo: not-in-the-index cannot be installed: ")
    assert not (here / ".velodrome" / "venvs" / "not_in_the_index").exists()


def adapted(python: str) -> AdaptedEnvironment:
    return AdaptedEnvironment(adapter="verifiers", package="sums_taskset", python=python)


@pytest.mark.slow
def test_a_process_that_dies_fails_its_rollouts_and_the_next_has_another(here: Path, installed: Any):
    async def check() -> str:
        environment = adapted(installed("verifiers"))
        (task,) = await environment.tasks(1)
        with pytest.raises(TaskError, match='no "verifiers" in the task'):
            await environment.open({})
        session = await environment.open(task)
        assert environment._running is not None
        os.kill(environment._running.program.pid, signal.SIGKILL)
        await asyncio.wait_for(environment._running.program.ended(), DEADLINE_S)
        with pytest.raises(ToolError, match="its process ended: signal SIGKILL"):
            await environment.call(session, "sums_add", {"a": 1, "b": 2})
        with pytest.raises(VerifyError, match="its process ended"):
            await environment.score(session, task, {"output": []})
        await environment.close(session)
        again = await environment.open(task)
        result = await environment.call(again, "sums_add", {"a": 1, "b": 2})
        with pytest.raises(ToolError, match="the session is gone"):
            await environment.call(session, "sums_add", {"a": 1, "b": 2})
        await environment.aclose()
        return result

    assert asyncio.run(check()) == "3"


def test_sessions_at_once_do_not_mix(here: Path, installed: Any):
    async def one(environment: AdaptedEnvironment, task: Json, count: int) -> str:
        session = await environment.open(task)
        for _ in range(count):
            await environment.call(session, "sums_add", {"a": 1, "b": 1})
        calls = await environment.call(session, "sums_calls", {})
        await environment.close(session)
        return calls

    async def check() -> list[str]:
        environment = adapted(installed("verifiers"))
        (task,) = await environment.tasks(1)
        counts = await asyncio.gather(*(one(environment, task, count) for count in range(16)))
        await environment.aclose()
        return counts

    assert asyncio.run(check()) == [str(count) for count in range(16)]


def test_an_environment_of_gymnasium_is_played_by_turns(here: Path):
    add("gymnasium:FrozenLake-v1", "--name", "lake", "--tasks", "2", "--arguments", '{"is_slippery": false}')
    rows = collected(here, "lake", ["down", "down", "right", "right", "down", "right"])
    assert [(row["reward"], row["step_rewards"][-1], row["terminated"]) for row in rows] == [(1.0, 1.0, True)] * 2
    assert [row["reward"] for row in collected(here, "lake", ["right", "down"])] == [0.0, 0.0]
    assert main(["test", "lake"]) == 0


def test_a_resources_server_of_nemo_gym_is_a_block_with_its_url(here: Path):
    from tests.interop.test_nemo_gym import SCRIPT, TASKS, their_servers

    with their_servers("http://127.0.0.1:9/v1", here) as urls:
        add(f"nemo_gym:{urls['environment']}", "--name", "their_counter")
        tasks = [{**task, "id": str(number)} for number, task in enumerate(TASKS)]
        rows = collected(here, "their_counter", SCRIPT, tasks)
    assert [row["reward"] for row in rows] == [1.0, 1.0, 0.0]
