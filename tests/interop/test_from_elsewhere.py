"""docs/from-*.md: the code blocks run, theirs with their package and ours here, and the rewards are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson

from tests.interop.programs import environment, inherited, make_home, process_group
from tests.interop.test_nemo_gym_folder import served_by_the_package
from tests.support import hosted as hosting
from tests.support import pages
from tests.support.patience import DEADLINE_S
from velodrome.contracts import as_model

Json = dict[str, Any]

HERE = Path(__file__).parent
REPLIES = {  # of a model that has looked a price up: brief and right, long and right, not at its end, wrong
    "What do 2 pears and a bread cost?": "The total is 5.60.",
    "What do 3 milks cost?": "I have looked it up for you, and so the total of that must be 2.85",
    "And a pear?": "1.25, I think",
}


async def shopper(request: Json) -> Json | str:
    """A model that looks one price up and then answers."""
    items = request["input"]
    if items[-1].get("type") != "function_call_output":
        call = {"type": "function_call", "call_id": "c1", "name": "price", "arguments": '{"item": "pear"}'}
        return {"output": [call]}
    texts = [json.dumps(item) for item in items]
    return next(reply for question, reply in REPLIES.items() if any(question in text for text in texts))


def code(page: str, heading: str, language: str = "python") -> str:
    [block] = pages.blocks(pages.section(pages.read(page), heading), language)
    return block


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def typed(folder: Path, command: str) -> None:
    """A block of commands, with our programs on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def ours(folder: Path, page: str, model: str) -> dict[str, Json]:
    """What steps 2 and 3 of a page leave, by the question."""
    home = folder / "resources_servers" / "shop"
    (home / "configs").mkdir(parents=True)
    (home / "app.py").write_text(code(page, "Step 2: the environment"))
    (home / "configs" / "shop.yaml").write_text(code(page, "Step 2: the environment", "yaml"))
    (folder / "model.yaml").write_text(
        json.dumps({"policy_model": {"responses_api_models": {"openai_model": {"url": model}}}})
    )
    commands = [line for line in code(page, "Step 3: run", "bash").splitlines() if not line.startswith("velo view")]
    typed(folder, "velo data validate tasks.jsonl\n" + "\n".join(commands))
    rows = [orjson.loads(line) for line in (folder / "rollouts.jsonl").read_bytes().splitlines()]
    return {row["responses_create_params"]["input"][1]["content"]: row for row in rows}


def run_theirs(program: str, folder: Path, script: str, *arguments: str, **variables: str) -> str:
    """What a script of the folder prints where their package is installed."""
    command = [str(environment(program)), script, *arguments]
    with process_group(command, folder, inherited() | variables, stderr=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, out + err
    return out


def rewards(folder: Path, page: str, program: str, module: str, **variables: str) -> list[float]:
    """What each question earns, theirs with their package and ours here: the same."""
    evaluate = (HERE / f"{program}_shop.py").read_text()
    write(folder, **{module: code(page, "Theirs")}, write_tasks=code(page, "Step 1: the tasks"), evaluate=evaluate)
    (folder / "tasks.jsonl").write_text(run_theirs(program, folder, "write_tasks.py"))
    with hosting.hosted("responses_api_models", lambda: as_model(shopper)) as model:
        printed = run_theirs(program, folder, "evaluate.py", f"{model}/v1", **variables)
        rows = ours(folder, page, model)
    theirs: dict[str, float] = json.loads(printed.splitlines()[-1])
    assert theirs == {question: row["reward"] for question, row in rows.items()}
    return sorted(theirs.values())


def test_the_page_on_verifiers(tmp_path: Path):
    make_home(tmp_path / "home", environment("verifiers"))
    variables = {"HOME": str(tmp_path / "home"), "NO_KEY": "none", "PYTHONPATH": str(tmp_path)}
    assert rewards(tmp_path, "from-verifiers.md", "verifiers", "shop_taskset", **variables) == [0.25, 0.75, 1.0]


def test_the_page_on_inspect(tmp_path: Path):
    assert rewards(tmp_path, "from-inspect.md", "inspect", "shop", HOME=str(tmp_path)) == [0.5, 1.0, 1.0]


def test_the_page_on_nemo_gym(tmp_path: Path):
    """The folder as it is, the same folder served by the package, and the class that is written for Velodrome."""
    page = "from-nemo-gym.md"
    app, config = code(page, "A folder as it is"), code(page, "A folder as it is", "yaml")
    calls = [{"tool_calls": [{"name": "add", "arguments": {"number": 3}}]}, "Done."]
    model = {"policy_model": {"responses_api_models": {"scripted_model": {"answers": calls}}}}
    commands = code(page, "A folder as it is", "bash").partition("\n")[2]
    earned = {}
    root = folder(tmp_path / "as_it_is", app, config)
    earned["as it is"] = tally(root, page, model, commands)
    with served_by_the_package(root, "tally", "TallyResourcesServer") as url:
        there = config.replace("entrypoint: app.py\n      domain: other", f"url: {url}")
        assert there != config
        earned["by url"] = tally(folder(tmp_path / "by_url", app, there), page, model, commands)
    anew = folder(tmp_path / "anew", code(page, "The same, written for Velodrome"), config)
    earned["written anew"] = tally(anew, page, model, commands)
    assert earned == {form: {0: 1.0, 4: 0.0} for form in ("as it is", "by url", "written anew")}


def folder(root: Path, app: str, config: str) -> Path:
    home = root / "resources_servers" / "tally"
    (home / "configs").mkdir(parents=True)
    (home / "app.py").write_text(app)
    (home / "configs" / "tally.yaml").write_text(config)
    return root


def tally(root: Path, page: str, model: Json, commands: str) -> dict[int, float]:
    (root / "tasks.jsonl").write_text(code(page, "A folder as it is", "jsonl"))
    (root / "model.yaml").write_text(json.dumps(model))
    typed(root, commands)
    rows = [orjson.loads(line) for line in (root / "rollouts.jsonl").read_bytes().splitlines()]
    return {row["start"]: row["reward"] for row in rows}


def test_the_names_on_the_page_are_those_of_the_stand_in():
    from velodrome.connect.nemo_gym.names import METRICS_MODULE, MODULES

    table = pages.rows(pages.section(pages.read("from-nemo-gym.md"), "What a folder may use"))
    listed = {name.removeprefix("nemo_gym."): pages.CODE.findall(text) for name, text in table.items() if "." in name}
    assert set(listed) == {*MODULES, METRICS_MODULE} - {"global_config"}
    missing = [name for module, names in listed.items() for name in names if name not in MODULES.get(module, names)]
    assert missing == []
