"""From a name in the config to the live object, or to one clear line."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import DEADLINE_S
from velodrome.errors import InputError
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.components import Components, component_class, mistakes_in, source_digest, unknown
from velodrome.settings import KINDS, Config, Instance
from velodrome.settings.files import PACKAGE, implementations

ENV = """
from velodrome import Environment


class Mine(Environment):
    closed = []

    def verify(self, task, response):
        return {"reward": 1.0}

    async def aclose(self):
        Mine.closed.append(self)
"""
MODEL = "responses_api_models"
RESOURCES = "resources_servers"
AGENT = "responses_api_agents"


def block(name: str, kind: str, implementation: str, **settings: Any) -> Instance:
    return Instance(name, kind, implementation, settings, "my.yaml")


def components(root: Path, *blocks: Instance) -> Components:
    return Components(Config({}, {each.name: each for each in blocks}), root)


def write(root: Path, kind: str, implementation: str, code: str, name: str = "app.py") -> Path:
    path = root / kind / implementation / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    return path


def trio(**agent: Any) -> list[Instance]:
    links = {
        "model_server": {"type": MODEL, "name": "m"},
        "resources_server": {"type": RESOURCES, "name": "env"},
    }
    return [
        block("m", MODEL, "scripted_model", answers=["x"]),
        block("env", RESOURCES, "mine"),
        block("a", AGENT, "simple_agent", **links, **agent),
    ]


def problem(result: Components, name: str) -> str:
    with pytest.raises(InputError) as caught:
        result.connect(name)
    return str(caught.value)


def test_a_component_is_made_once_with_what_it_refers_to(tmp_path: Path):
    write(tmp_path, RESOURCES, "mine", ENV)
    result = components(tmp_path, *trio())
    agent = result.connect("a")
    assert isinstance(agent, SimpleAgent)
    assert agent is result.agent("a")
    assert agent.model is result.connect("m")
    assert agent.environment is result.resources_of("a")
    assert isinstance(agent.model, ScriptedModel)
    assert type(agent.environment).__name__ == "Mine"


LOGGING = """
class {name}:
    def __init__(self, model=None): ...
    async def respond(self, request): ...
    async def run(self, task, verify=True): ...
    async def aclose(self):
        with open({log!r}, "a") as log:
            log.write("{name} ")
"""


def test_everything_that_was_made_is_closed_users_before_the_used(tmp_path: Path):
    log = tmp_path / "log"
    write(tmp_path, MODEL, "one", LOGGING.format(name="One", log=str(log)))
    write(tmp_path, AGENT, "two", LOGGING.format(name="Two", log=str(log)))
    agent = block("a", AGENT, "two", model={"type": MODEL, "name": "m"})
    result = components(tmp_path, block("m", MODEL, "one"), agent)
    result.connect("a")
    asyncio.run(result.aclose())
    asyncio.run(result.aclose())
    assert log.read_text() == "Two One "


def test_a_component_of_the_working_directory_goes_before_the_packages(tmp_path: Path):
    init = "def __init__(self, anything): self.anything = anything"
    code = f"class Mine:\n    {init}\n    async def respond(self, r): ...\n"
    write(tmp_path, MODEL, "scripted_model", code)
    own = components(tmp_path, block("m", MODEL, "scripted_model", anything=1)).connect("m")
    assert (type(own).__name__, own.anything) == ("Mine", 1)


@pytest.mark.slow
def test_code_can_import_the_files_beside_it(tmp_path: Path):
    """In a process of its own, which starts without the folder on its path, as the commands do."""
    lines = "from .grade import REWARD\nfrom resources_servers.graded.grade import REWARD as SAME\n"
    write(tmp_path, RESOURCES, "graded", f"{lines}\n{ENV.replace('1.0', 'REWARD + SAME')}", "server.py")
    write(tmp_path, RESOURCES, "graded", "REWARD = 0.25\n", "grade.py")
    code = """
import sys
sys.path.remove("")
import asyncio
from velodrome.settings import Config, Instance
from velodrome.serving.components import Components
graded = Instance("e", "resources_servers", "graded", {"entrypoint": "server.py"}, "my.yaml")
print(asyncio.run(Components(Config({}, {"e": graded})).connect("e").score("1", {}, {})))
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.stdout, done.stderr) == ("{'reward': 0.5}\n", "")


def test_the_family_of_an_agent_is_all_it_refers_to_near_or_far():
    judge = {"type": MODEL, "name": "judge"}
    blocks = trio()
    blocks[1] = block("env", RESOURCES, "mine", judge_model_server=judge)
    blocks += [block("judge", MODEL, "scripted_model"), block("stranger", MODEL, "scripted_model")]
    result = components(Path("/nowhere"), *blocks)
    assert sorted(result.family(["a"])) == ["a", "env", "judge", "m"]
    assert list(result.family(["m", "nobody"])) == ["m"]


def test_names_nobody_knows_are_answered_with_the_nearest(tmp_path: Path):
    result = components(tmp_path, *trio())
    assert '"env"?' in problem(result, "enw")
    for asked, name in ((result.agent, "m"), (result.resources_of, "zzz")):
        with pytest.raises(InputError, match=r"no agent .* there are: a$"):
            asked(name)
    assert "the config has none" in unknown("agent", "x", [])
    text = problem(components(tmp_path, block("m", MODEL, "scripted_modle")), "m")
    assert (text.startswith("my.yaml: m."), text.endswith('"scripted_model"?')) == (True, True)
    with pytest.raises(InputError, match=r"^a: no resources_server in its block"):
        components(tmp_path, block("a", AGENT, "simple_agent")).resources_of("a")


TWO = "class A:\n    async def respond(self, r): ...\nclass B(A): ...\nclass _C(A): ...\n"
UNUSABLE = [
    ("import no_such_module_at_all\n", r"^{path}: cannot be imported: .*no_such_module_at_all.*\({path}:1 in"),
    ("import os\ndef verify(\n", r"^{path}: cannot be imported: SyntaxError: .*\({path}:2\)$"),
    (
        "class P:\n    def __init__(self): 1 / 0\n    async def respond(self, r): ...\n",
        r"^my.yaml: m: cannot be made: Zero",
    ),
    ("class A:\n    pass\n", r"^{path}: no class with the methods respond"),
    (TWO, r"^{path}: 2 classes \(A, B\)"),
]


@pytest.mark.parametrize(("code", "message"), UNUSABLE, ids=["import", "syntax", "raises", "none", "two"])
def test_code_that_cannot_be_imported_or_made_or_has_not_one_class_is_one_clear_line(
    tmp_path: Path, code: str, message: str
):
    path = write(tmp_path, MODEL, "mine", code)
    text = problem(components(tmp_path, block("m", MODEL, "mine")), "m")
    assert re.search(message.format(path=re.escape(str(path))), text)
    assert "\n" not in text


def test_every_mistake_in_the_blocks_of_an_agent_is_named_with_its_place(tmp_path: Path):
    write(tmp_path, RESOURCES, "mine", ENV)
    plain = "class P:\n    def __init__(self, size, judge=None): ...\n    async def respond(self, r): ...\n"
    write(tmp_path, MODEL, "plain", plain)
    agent, environment = trio(max_step=1)[2], block("env", RESOURCES, "mine", thread=3, verify_timeout_s="x", port=1)
    text = problem(components(tmp_path, agent, environment, block("m", MODEL, "plain", sise=1)), "a")
    places = [f"a.{AGENT}.simple_agent", *[f"env.{RESOURCES}.mine"] * 2, *[f"m.{MODEL}.plain"] * 2]
    assert sorted(line.split(": ", 2)[1] for line in text.splitlines()) == places
    for nearest in ("max_steps", "threads", "size"):
        assert f'did you mean "{nearest}"?' in text


def test_the_source_of_a_component_is_its_folder_without_tests_and_caches(tmp_path: Path):
    files = {"app.py": "a = 1", "rules/deep.py": "b = 2", "data.txt": "x"}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    before = source_digest(tmp_path / "app.py")
    for name in ("tests/t.py", "__pycache__/c.py", ".venv/v.py", "test_it.py", "conftest.py", "notes.md"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("c = 3")
    assert source_digest(tmp_path / "app.py") == before
    (tmp_path / "rules" / "deep.py").write_text("b = 3")
    edited = source_digest(tmp_path / "app.py")
    (tmp_path / "rules" / "deep.py").rename(tmp_path / "deep.py")
    assert len({before, edited, source_digest(tmp_path / "app.py")}) == 3


def test_every_component_of_the_package_refuses_a_key_it_does_not_know(tmp_path: Path):
    for kind in KINDS:
        for name in implementations(kind, PACKAGE):
            instance = Instance("x", kind, name, {"no_such": 1}, "t.yaml")
            assert any(
                'unknown key "no_such"' in line for line in mistakes_in(instance, component_class(instance, tmp_path))
            )
