"""Seed 000's load test as one command: servers with profiling, rollouts, the tables and the verdict, nothing left."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S

from velodrome.profiling.profile_file import read_profile
from velodrome.profiling.profile_text import profile_tree, verdict_text

pytestmark = pytest.mark.slow

COMMAND = (
    'velo profile --load-test "+config_paths=[agent.yaml,model.yaml]" +agent_name=my_agent '
    "+input_jsonl_fpath=tasks.jsonl +profiling_results_dirpath=results/profiling/calculator"
)
RESULTS = "results/profiling/calculator"


@pytest.fixture
def place(workplace: Any) -> Iterator[Any]:
    """A project whose usual head address is somebody else's: a load test must not go there."""
    workplace.scripted(latency_s=0.01)
    workplace.tasks("tasks.jsonl", 300)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        workplace.write("env.yaml", f"head_server: {{host: 127.0.0.1, port: {other.getsockname()[1]}}}\n")
        yield workplace
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()
    assert left_running(workplace.folder) == []


def left_running(folder: Path) -> list[str]:
    """The command lines of processes that still work in a folder."""
    result = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.joinpath("cwd").readlink() == folder:
                result.append(process.joinpath("cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # it has ended, or is not ours
    return result


def table(text: str, title: str) -> dict[str, list[float]]:
    """The rows of a table of calls: ncall, tsub, ttot, tavg by name."""
    head, *lines = text.partition(title)[2].partition("\n\n")[0].splitlines()[1:]
    assert head.split() == ["name", "ncall", "tsub", "ttot", "tavg"]
    rows = [line.rsplit(None, 4) for line in lines if not line.startswith("and ")]
    return {name.strip(): [float(cell) for cell in cells] for name, *cells in rows}


def test_one_command_gives_the_tables_and_the_verdict_and_leaves_nothing_running(place: Any) -> None:
    done = place.run(f"{COMMAND} +limit=256 --html")
    assert done.returncode == 0, done.stderr
    for clock in ("CPU", "wall"):
        calls = table(done.stdout, f"calculator, {clock} time in seconds ")
        ncall, _, ttot, tavg = calls["Calculator.verify"]
        assert ncall == 256
        assert tavg == pytest.approx(ttot / ncall, abs=1e-6)
    rollouts = place.folder / RESULTS / "rollouts.jsonl"
    assert len(rollouts.read_text().splitlines()) == 256
    profile = read_profile(rollouts)
    assert done.stdout.endswith(f"\n{profile_tree(profile)}\n\n{verdict_text(profile['verdict'])}\n")
    assert "Rollout Timing Profile (rollouts=256)" in done.stdout
    assert f"requested 256 = kept 256 + failed 0  ->  {RESULTS}/rollouts.jsonl" in done.stderr
    assert (rollouts.parent / "rollouts.profile.html").read_text().startswith("<!doctype html>")
    again = place.run(COMMAND)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == (
        f"velo: {RESULTS}/rollouts.jsonl: a load test makes its rollouts anew; +overwrite=true replaces these, "
        "another +output_jsonl_fpath keeps them\n"
    )


def test_with_json_stdout_is_the_profile_and_where_the_tables_are(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.folder)
    done = place.run(f"{COMMAND} +limit=32 --json".replace(RESULTS, "elsewhere"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report.pop("servers") == {"calculator": ["elsewhere/calculator.log", "elsewhere/calculator.wall.log"]}
    assert report == json.loads(json.dumps(read_profile(Path("elsewhere/rollouts.jsonl"))))


def test_without_a_name_each_load_test_has_a_folder_of_its_own(place: Any) -> None:
    command = COMMAND.replace(f"+profiling_results_dirpath={RESULTS}", "+trace_path=trace.json")
    done = place.run(f"{command} +limit=8")
    assert done.returncode == 0, done.stderr
    assert "model" in [event.get("name") for event in json.loads((place.folder / "trace.json").read_text())]
    [folder] = (place.folder / "results" / "profiling").iterdir()
    assert {"rollouts.jsonl", "calculator.log", "calculator.wall.log", "logs"} <= {
        each.name for each in folder.iterdir()
    }


def test_failed_rollouts_show_in_the_exit_code(place: Any) -> None:
    model = (place.folder / "model.yaml").read_text()
    place.write("model.yaml", f"{model}      faults: [{{kind: status, status: 400, rate: 0.3}}]\n")
    done = place.run(f"{COMMAND} +limit=60")
    assert done.returncode == 3, done.stderr
    assert "Verdict" not in done.stderr
    assert done.stdout.count("<-- BOTTLENECK") == ("throughput is not known" not in done.stdout)


def test_a_server_that_does_not_start_is_told_and_the_others_are_stopped(place: Any) -> None:
    place.write(
        "agent.yaml", (place.folder / "agent.yaml").read_text().replace("entrypoint: app.py}", "entrypoint: x.py}")
    )
    done = place.run(COMMAND)
    assert (done.returncode in (1, 2), done.stdout) == (True, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_stops_everything_and_shows_what_there_is(place: Any, number: signal.Signals) -> None:
    place.scripted(latency_s=0.2)
    place.write("env.yaml", "")
    rollouts = place.folder / RESULTS / "rollouts.jsonl"
    with subprocess.Popen(
        ["bash", "-c", f"exec {COMMAND} +num_samples_in_parallel=4"],
        cwd=place.folder,
        env=place.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not rollouts.exists() or rollouts.read_bytes().count(b"\n") < 8:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            process.send_signal(number)
            out, err = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 128 + number, err
    kept = len(rollouts.read_text().splitlines())
    assert 8 <= kept < 300
    assert f"(rollouts={kept})" in out
    assert table(out, "calculator, CPU time in seconds ")["Calculator.verify"][0] == kept


def test_a_signal_while_servers_start_stops_them(place: Any) -> None:
    with subprocess.Popen(
        ["bash", "-c", f"exec {COMMAND}"], cwd=place.folder, env=place.environ, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("starting 3 servers and the head")
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 130
        finally:
            process.kill()
    assert not (place.folder / RESULTS / "rollouts.jsonl").exists()
