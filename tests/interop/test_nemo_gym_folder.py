"""The same resources-server folder, run by the real NeMo Gym and run here, gives the same answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from tests.interop.gym_folders import TILL_SCRIPT, TILL_TASKS, config, write_till
from tests.interop.programs import ROOT, environment, inherited
from tests.interop.servers import gym_servers
from tests.support.patience import DEADLINE_S

Json = dict[str, Any]

OF_THE_RUN = ("id", "call_id", "created_at")


@contextmanager
def served_by_the_package(root: Path, name: str, kind: str) -> Iterator[str]:
    """The address of `resources_servers/NAME`, whose class is KIND, served by nemo-gym."""
    own = {"type": "resources_servers", "name": name, "class": f"app:{kind}", "settings": {"domain": "other"}}
    with gym_servers(root, {name: {**own, "folder": str(root / "resources_servers" / name)}}) as urls:
        yield urls[name]


def collected(root: Path, name: str, blocks: Json, python: Path = Path(sys.executable)) -> list[Json]:
    """The rollouts of `velo collect` with these blocks, in this interpreter or another one."""
    model = {"policy_model": {"responses_api_models": {"scripted_model": {"answers": TILL_SCRIPT}}}}
    (root / f"{name}.yaml").write_bytes(orjson.dumps(blocks | model))
    (root / "t.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in TILL_TASKS))
    files = [f"+config_paths=[{name}.yaml]", "+input_jsonl_fpath=t.jsonl", f"+output_jsonl_fpath={name}.jsonl"]
    command = [str(python), "-m", "velodrome.cli.main", "collect", "+embedded=true", *files]
    installed = root / "velodrome-0.dist-info"  # elsewhere the package is only on the path
    installed.mkdir(exist_ok=True)
    (installed / "METADATA").write_text("Name: velodrome\nVersion: 0\n")
    env = inherited() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{root}"}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    rows = [orjson.loads(line) for line in (root / f"{name}.jsonl").read_bytes().splitlines()]
    return sorted((without_the_run(row) for row in rows), key=lambda row: row["opening"])


def without_the_run(row: Json) -> Json:
    """The task, what the model and the tools said, and the score."""

    def stripped(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: stripped(each) for key, each in value.items() if key not in OF_THE_RUN}
        return [stripped(each) for each in value] if isinstance(value, list) else value

    kept = {key: value for key, value in row.items() if key not in ("meta", "response")}
    return stripped({**kept, "output": row.get("output") or row["response"].get("output")})


def test_the_package_and_this_one_give_the_same_rollouts(tmp_path: Path):
    """Tool results, errors that the model reads, sessions by cookie, the score and its fields."""
    write_till(tmp_path)
    ours = collected(tmp_path, "ours", config("till"))
    with served_by_the_package(tmp_path, "till", "TillResourcesServer") as url:
        theirs = collected(tmp_path, "theirs", config("till", url=url))
    assert [row["reward"] for row in ours] == [1, 0, 1]
    assert [len(row["output"]) for row in ours] == [8, 8, 8]  # calls, their results, and the last word
    assert ours == theirs


def test_beside_the_package_a_folder_uses_it_and_gives_the_same_rollouts(tmp_path: Path):
    """In the interpreter that has nemo-gym, whose base classes are then the real ones."""
    folder = write_till(tmp_path)
    ours = collected(tmp_path, "ours", config("till"))
    with (folder / "app.py").open("a") as app:
        app.write("\nimport nemo_gym.rollout_collection  # which nothing stands in for\n")
    assert collected(tmp_path, "beside", config("till"), environment("nemo_gym")) == ours
