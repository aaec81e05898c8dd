"""Resources-server folders in NeMo Gym's shape run as they are: embedded, served and in workers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.interop.gym_folders import TASTER, TILL, TILL_SCRIPT, TILL_TASKS, config, write_folder, write_till
from velodrome.connect.nemo_gym.asgi import AsgiApp
from velodrome.connect.nemo_gym.imports import uses_nemo_gym
from velodrome.errors import InputError, ToolError, VerifyError
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.components import Components, entry_file, own_settings
from velodrome.settings import Instance, load

Json = dict[str, Any]


def in_a_loop(test: Callable[..., Any]) -> Callable[..., None]:
    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """What a folder loads is forgotten with its test."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] in ("nemo_gym", "rounding") or name.startswith("velodrome_component_"):
            del sys.modules[name]


def components(root: Path, blocks: Json, **live: Any) -> Components:
    (root / "blocks.yaml").write_bytes(orjson.dumps(blocks))
    found = load(["+config_paths=[blocks.yaml]"], cwd=root, scoring=True)
    return Components(found, root, live=live)


def environment(root: Path, name: str, app: str, **settings: Any) -> Any:
    write_folder(root, name, app)
    return components(root, config(name, **settings)).connect(f"{name}_resources_server")


def till(root: Path, **settings: Any) -> Any:
    write_till(root)
    return components(root, config("till", **settings)).connect("till_resources_server")


def answer(*output: Json) -> Json:
    return {"output": list(output)}


def said(text: str) -> Json:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


@in_a_loop
async def test_sessions_are_kept_apart_and_verify_reads_them(tmp_path: Path):
    shop = till(tmp_path)
    first, second = [await shop.open(task) for task in TILL_TASKS[:2]]
    pears = {"name": "pear", "price": 1.25, "count": 2}
    assert orjson.loads(await shop.call(first, "add_item", pears)) == {"total": 2.5}
    assert orjson.loads(await shop.call(second, "add_item", pears)) == {"total": 12.5}
    assert orjson.loads(await shop.call(first, "total", {})) == {"total": 2.5}
    score = await shop.score(first, TILL_TASKS[0], answer(said("It is 2.50.")))
    assert score == {"reward": 1.0, "total": 2.5, "said": "It is 2.50.", "calls": 0, "expected_total": 2.5}
    assert (await shop.score(second, TILL_TASKS[1], answer(said("No idea."))))["reward"] == 0
    assert not await shop.deferrable()
    await shop.close(first)
    await shop.aclose()


@in_a_loop
async def test_what_the_model_did_wrong_is_a_text_and_what_the_code_did_wrong_is_a_fault_with_its_place(tmp_path: Path):
    shop = till(tmp_path)
    session = await shop.open(TILL_TASKS[0])
    for name, arguments, part in [
        ("add_item", {"name": "pear", "price": "dear"}, "valid number"),
        ("add_item", {"name": "pear", "price": -1}, "not below zero"),
        ("nothing", {}, "Not Found"),
        ("verify", {}, "there is no tool"),
        ("a/b", {}, "there is no tool"),
    ]:
        text = await shop.call(session, name, arguments)
        assert text.startswith("error:")
        assert part in text
    with pytest.raises(ToolError, match="jam: RuntimeError: the drawer is jammed") as fault:
        await shop.call(session, "jam", {})
    assert fault.value.place is not None
    assert "till/app.py" in fault.value.place
    with pytest.raises(VerifyError, match="expected_total"):
        await shop.score(session, {"responses_create_params": {"input": "?"}}, answer(said("x")))
    with pytest.raises(ToolError, match="opening"):
        await shop.open({"responses_create_params": {"input": "?"}})
    await shop.aclose()


BY_HAND = """        answer = await self.server_client.post(
            server_name=self.config.judge_model_server.name, url_path="/v1/responses", json=params
        )
        judged = NeMoGymResponse.model_validate(await get_response_json(answer))
"""
BY_HELPER = """        name = self.config.judge_model_server.name
        how = {"url_path": "/v1/responses", "json": params, "response_model": NeMoGymResponse}
        judged = await call_judge(self.server_client, server_name=name, **how)
"""
IMPORTS = ("from nemo_gym.server_utils import get_response_json", "from nemo_gym.judge import call_judge")


@pytest.mark.parametrize("app", [TASTER, TASTER.replace(BY_HAND, BY_HELPER).replace(*IMPORTS)], ids=["post", "helper"])
@in_a_loop
async def test_a_judge_is_the_live_model_that_the_block_refers_to(tmp_path: Path, app: str):
    write_folder(tmp_path, "taster", app)
    judge = {"type": "responses_api_models", "name": "judge"}
    blocks = config("taster", judge_model_server=judge, judge_responses_create_params={"input": [], "temperature": 0})
    blocks["judge"] = {"responses_api_models": {"scripted_model": {"answers": ["no"]}}}
    asked: list[Json] = []

    class Judge(ScriptedModel):
        async def respond(self, request: Json) -> Json:
            asked.append(request)
            return await super().respond(request)

    live = Judge(answers=["yes"], faults=[{"kind": "status", "status": 500, "every": 2}])
    taster = components(tmp_path, blocks, judge=live).connect("taster_resources_server")
    question = ("", {"responses_create_params": {"input": "?"}}, answer(said("soup")))
    assert await taster.score(*question) == {"reward": 1.0, "verdict": "yes"}
    assert [(each["temperature"], each["input"][0]["content"]) for each in asked] == [(0, "Is it good? soup")]
    assert await taster.deferrable()
    with pytest.raises(VerifyError):
        await taster.score(*question)
    await taster.aclose()


MARKED = """
from typing import ClassVar
from nemo_gym.base_resources_server import BaseResourcesServerConfig, ReverifyMode, SimpleResourcesServer
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse

class MarkedConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNSUPPORTED

class MarkedServer(SimpleResourcesServer):
    config: MarkedConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        lost = body.response.output_text == "lost"
        reason = {"mask_sample": True, "failure_kind": "session_lost", "failure_reason": "no session"} if lost else {}
        return BaseVerifyResponse(**body.model_dump(), reward=0.0, **reason)
"""


@in_a_loop
async def test_a_score_that_its_server_marks_as_invalid_is_a_fault(tmp_path: Path):
    marked = environment(tmp_path, "marked", MARKED)
    task = {"responses_create_params": {"input": "?"}}
    session = await marked.open(task)
    assert await marked.score(session, task, answer(said("fine"))) == {"reward": 0.0}
    with pytest.raises(VerifyError, match=r"not valid \(session_lost\): no session"):
        await marked.score(session, task, answer(said("lost")))
    await marked.close(session)
    assert not await marked.deferrable()
    await marked.aclose()


@in_a_loop
async def test_an_app_in_plain_middleware_runs_without_a_startup():
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": (await receive())["body"]})

    wrapped = AsgiApp(app)
    assert (await wrapped.post("/tool", b"{}")).body == b"{}"
    await wrapped.aclose()


LIFE = """
from contextlib import asynccontextmanager
from nemo_gym.base_resources_server import BaseResourcesServerConfig as Config, SimpleResourcesServer
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse

EVENTS = []

class LifeServer(SimpleResourcesServer):
    config: Config

    def setup_webserver(self):
        app = super().setup_webserver()

        @asynccontextmanager
        async def lifespan(app):
            EVENTS.append("start")
            yield
            EVENTS.append("end")

        app.router.lifespan_context = lifespan
        return app

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=len(EVENTS))
"""


@in_a_loop
async def test_an_app_is_started_once_before_its_first_answer_and_ended(tmp_path: Path):
    life = environment(tmp_path, "life", LIFE)
    task = {"responses_create_params": {"input": "?"}}
    assert [(await life.score("", task, answer(said("x"))))["reward"] for _ in range(2)] == [1, 1]
    await life.aclose()
    assert sys.modules["velodrome_component_resources_servers_life"].EVENTS == ["start", "end"]


ABSENT = [
    ("from nemo_gym.server_utils import get_server_url\n", r"app\.py:1: nemo_gym\.server_utils\.get_server_url"),
    ("import os\nfrom nemo_gym.sandbox import Sandbox\n", r"app\.py:2: nemo_gym\.sandbox\.Sandbox"),
    ("from nemo_gym import PARENT_DIR\n", r"app\.py:1: nemo_gym\.PARENT_DIR"),
    (TILL.replace("from rounding", "from absent_package"), "cannot be imported.*absent_package"),
    ("from nemo_gym.config_types import ModelServerRef\n", "no class derived from Environment"),
    (LIFE + "class OtherServer(SimpleResourcesServer): ...", r"2 servers \(LifeServer, OtherServer\)"),
]


def test_what_a_folder_uses_and_is_not_here_is_one_line(tmp_path: Path):
    for number, (app, problem) in enumerate(ABSENT):
        with pytest.raises(InputError, match=problem) as error:
            environment(tmp_path, f"odd{number}", app)
        assert len(error.value.problems) == 1


def test_a_setting_that_its_config_class_needs_is_named_with_its_block(tmp_path: Path):
    with pytest.raises(InputError) as error:
        environment(tmp_path, "taster", TASTER)
    fields = [line.partition("_resources_server: ")[2].partition(":")[0] for line in error.value.problems]
    assert fields == ["judge_model_server", "judge_responses_create_params"]


def test_files_beside_it_are_modules_also_if_another_folder_has_one_of_that_name(tmp_path: Path):
    for name, value in (("left", 1), ("right", 2)):
        app = LIFE.replace("EVENTS = []", "from rounding import VALUE\nEVENTS = []").replace("len(EVENTS)", "VALUE")
        write_folder(tmp_path, name, app, rounding=f"VALUE = {value}\n")
    both = components(tmp_path, {**config("left"), **config("right")})
    for name in ("left", "right"):
        both.connect(f"{name}_resources_server")
    loaded = [sys.modules[f"velodrome_component_resources_servers_{name}"] for name in ("left", "right")]
    assert [module.VALUE for module in loaded] == [1, 2]


def test_only_files_that_import_the_package_are_theirs(tmp_path: Path):
    path = tmp_path / "app.py"
    theirs = ["import nemo_gym\n", "def f():\n    from nemo_gym.x import y\n"]
    for text in (*theirs, "# nemo_gym\nimport os\n", "import nemo_gymnastics\n", "not python nemo_gym\n"):
        path.write_text(text)
        assert (text, uses_nemo_gym(path)) == (text, text in theirs)


PROMPTED = """
from nemo_gym.base_resources_server import BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.base_resources_server import SimpleResourcesServer


class PromptedConfig(BaseResourcesServerConfig):
    prompt_fpath: str = "prompts/judge.txt"


class PromptedResourcesServer(SimpleResourcesServer):
    config: PromptedConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        with open(self.config.prompt_fpath) as file:
            return BaseVerifyResponse(**body.model_dump(), reward=float(file.read()))
"""


@in_a_loop
async def test_in_a_clone_the_folder_runs_with_our_names_agents_and_models_and_reads_its_own_files(tmp_path: Path):
    folder = write_folder(tmp_path, "prompted", PROMPTED)
    (folder / "prompts").mkdir()
    (folder / "prompts" / "judge.txt").write_text("0.25")
    theirs = ["nemo_gym/__init__.py", "nemo_gym/base_resources_server.py"]
    theirs += [
        f"responses_api_{name}/app.py" for name in ("agents/simple_agent", "agents/other", "models/openai_model")
    ]
    for name in theirs:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("import nemo_gym, a_package_that_is_not_installed\n")
    sys.path.insert(0, str(tmp_path))
    there = components(tmp_path, config("prompted"))
    environment = there.connect("prompted_resources_server")
    session, task = await environment.open({"responses_create_params": {"input": "?"}}), TILL_TASKS[0]
    assert (await environment.score(session, task, answer(said("x"))))["reward"] == 0.25
    await there.aclose()
    for kind, name in (("responses_api_agents", "simple_agent"), ("responses_api_models", "openai_model")):
        ours = entry_file(Instance("x", kind, name, {}, "x.yaml"), tmp_path)
        assert not ours.is_relative_to(tmp_path)
    spelled_out = {"openai_default_headers": {}, "drop_input_reasoning_items": "False", "openai_model": "m"}
    there = Instance("x", "responses_api_models", "openai_model", spelled_out, "x.yaml")
    assert own_settings(there, ScriptedModel) == {"openai_model": "m"}
    with pytest.raises(InputError, match=r"responses_api_agents/other/app\.py: of NeMo Gym.*url"):
        entry_file(Instance("x", "responses_api_agents", "other", {}, "x.yaml"), tmp_path)


@pytest.mark.slow
def test_a_collection_with_its_own_config(tmp_path: Path):
    write_till(tmp_path)
    (tmp_path / "t.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in TILL_TASKS))
    model = {"policy_model": {"responses_api_models": {"scripted_model": {"answers": TILL_SCRIPT}}}}
    (tmp_path / "model.yaml").write_bytes(orjson.dumps(model))
    files = ["+config_paths=[resources_servers/till/configs/till.yaml,model.yaml]", "+input_jsonl_fpath=t.jsonl"]
    settings = ["+output_jsonl_fpath=r.jsonl", "+num_repeats=4", "+num_workers=2", "+embedded=true"]
    command = [sys.executable, "-m", "velodrome.cli.main", "collect", *files, *settings]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [orjson.loads(line) for line in (tmp_path / "r.jsonl").read_bytes().splitlines()]
    by_task = sorted((row["opening"], row["reward"], row["total"], row["calls"]) for row in rows)
    assert by_task == [(0, 1, 2.5, 5)] * 4 + [(1, 0, 3.5, 5)] * 4 + [(10, 1, 12.5, 5)] * 4
