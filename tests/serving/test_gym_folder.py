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
from gym_folders import TASTER, TILL, TILL_SCRIPT, TILL_TASKS, config, till_task, write_folder, write_till

from velodrome import http
from velodrome.errors import InputError, ToolError, VerifyError
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.connect import Components
from velodrome.serving.folders.gym_imports import folder_problems, uses_nemo_gym
from velodrome.serving.hosting import served
from velodrome.serving.remote import HttpResources
from velodrome.settings import load

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
async def test_served_by_us_it_answers_as_it_does_here(tmp_path: Path):
    shop = till(tmp_path)
    calls: list[tuple[str, Json]] = [
        ("add_item", {"name": "pear", "price": 1.25, "count": 2}),
        ("add_item", {"name": "pear", "price": "dear"}),
        ("total", {}),
        ("nothing", {}),
    ]
    seen = []
    async with served(shop) as url:
        for place in (shop, HttpResources(url)):
            session = await place.open(TILL_TASKS[1])
            texts = [await place.call(session, *call) for call in calls]
            seen.append((texts, await place.score(session, TILL_TASKS[1], answer(said("12.50")))))
            await place.close(session)
            assert not await place.deferrable()
    assert seen[0] == seen[1]
    await shop.aclose()
    await http.close_shared()


@in_a_loop
async def test_its_settings_are_those_of_its_config_class(tmp_path: Path):
    shop = till(tmp_path, discount=0.5)
    session = await shop.open(till_task(0, 1))
    assert orjson.loads(await shop.call(session, "add_item", {"name": "pear", "price": 2}))["total"] == 1
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


@in_a_loop
async def test_a_judge_is_the_live_model_that_the_block_refers_to(tmp_path: Path):
    write_folder(tmp_path, "taster", TASTER)
    judge = {"type": "responses_api_models", "name": "judge"}
    blocks = config("taster", judge_model_server=judge, judge_responses_create_params={"input": [], "temperature": 0})
    blocks["judge"] = {"responses_api_models": {"scripted_model": {"answers": ["no"]}}}
    asked: list[Json] = []

    class Judge(ScriptedModel):
        async def respond(self, request: Json) -> Json:
            asked.append(request)
            return await super().respond(request)

    live = Judge(answers=["yes"])
    taster = components(tmp_path, blocks, judge=live).connect("taster_resources_server")
    score = await taster.score("", {"responses_create_params": {"input": "?"}}, answer(said("soup")))
    assert score == {"reward": 1.0, "verdict": "yes"}
    assert [(each["temperature"], each["input"][0]["content"]) for each in asked] == [(0, "Is it good? soup")]
    assert await taster.deferrable()
    await taster.aclose()


@in_a_loop
async def test_a_judge_that_fails_is_a_fault_of_verification(tmp_path: Path):
    write_folder(tmp_path, "taster", TASTER)
    judge = {"type": "responses_api_models", "name": "judge"}
    blocks = config("taster", judge_model_server=judge, judge_responses_create_params={"input": []})
    blocks["judge"] = {"responses_api_models": {"scripted_model": {"answers": []}}}
    faults = ScriptedModel(answers=["yes"], faults=[{"kind": "status", "status": 500, "every": 1}])
    taster = components(tmp_path, blocks, judge=faults).connect("taster_resources_server")
    with pytest.raises(VerifyError, match="verify: "):
        await taster.score("", {"responses_create_params": {"input": "?"}}, answer(said("soup")))
    await taster.aclose()


MARKED = """
from typing import ClassVar
from nemo_gym.base_resources_server import BaseResourcesServerConfig, ReverifyMode, SimpleResourcesServer
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse
from pydantic import BaseModel

class Close(BaseModel):
    resources_session_id: str

class MarkedConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNSUPPORTED

class MarkedServer(SimpleResourcesServer):
    config: MarkedConfig

    def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/close_session")(self.close)
        return app

    async def close(self, body: Close) -> None: ...

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        lost = body.response.output_text == "lost"
        reason = {"mask_sample": True, "failure_kind": "session_lost", "failure_reason": "no session"} if lost else {}
        return BaseVerifyResponse(**body.model_dump(), reward=0.0, **reason)
"""


@in_a_loop
async def test_a_score_that_its_server_marks_as_invalid_is_a_fault_and_other_ways_to_close_are_left_alone(
    tmp_path: Path,
):
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
async def test_a_judge_asked_by_their_helper(tmp_path: Path):
    app = TASTER.replace(
        """        answer = await self.server_client.post(
            server_name=self.config.judge_model_server.name, url_path="/v1/responses", json=params
        )
        judged = NeMoGymResponse.model_validate(await get_response_json(answer))
""",
        """        judged = await call_judge(
            self.server_client, server_name=self.config.judge_model_server.name, url_path="/v1/responses",
            json=params, response_model=NeMoGymResponse,
        )
""",
    ).replace("from nemo_gym.server_utils import get_response_json", "from nemo_gym.judge import call_judge")
    assert "call_judge(" in app
    write_folder(tmp_path, "taster", app)
    judge = {"type": "responses_api_models", "name": "judge"}
    blocks = config("taster", judge_model_server=judge, judge_responses_create_params={"input": []})
    blocks["judge"] = {"responses_api_models": {"scripted_model": {"answers": ["yes"]}}}
    taster = components(tmp_path, blocks).connect("taster_resources_server")
    score = await taster.score("", {"responses_create_params": {"input": "?"}}, answer(said("soup")))
    assert score == {"reward": 1.0, "verdict": "yes"}
    broken = ScriptedModel(answers=["yes"], faults=[{"kind": "status", "status": 500, "every": 1}])
    taster = components(tmp_path, blocks, judge=broken).connect("taster_resources_server")
    with pytest.raises(VerifyError, match="JudgeError"):
        await taster.score("", {"responses_create_params": {"input": "?"}}, answer(said("soup")))


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


@pytest.mark.parametrize(
    ("app", "problem"),
    [
        ("from nemo_gym.server_utils import get_server_url\n", r"app\.py:1: nemo_gym\.server_utils\.get_server_url"),
        ("import os\nfrom nemo_gym.sandbox import Sandbox\n", r"app\.py:2: nemo_gym\.sandbox\.Sandbox"),
        ("from nemo_gym import PARENT_DIR\n", r"app\.py:1: nemo_gym\.PARENT_DIR"),
        (TILL.replace("from rounding", "from absent_package"), "cannot be imported.*absent_package"),
        ("from nemo_gym.config_types import ModelServerRef\n", "no class derived from Environment"),
        (LIFE + "class OtherServer(SimpleResourcesServer): ...", r"2 servers \(LifeServer, OtherServer\)"),
    ],
)
def test_what_a_folder_uses_and_is_not_here_is_one_line(tmp_path: Path, app: str, problem: str):
    with pytest.raises(InputError, match=problem) as error:
        environment(tmp_path, "odd", app)
    assert len(error.value.problems) == 1


def test_a_setting_that_its_config_class_needs_is_named_with_its_block(tmp_path: Path):
    blocks = config("taster")
    write_folder(tmp_path, "taster", TASTER)
    with pytest.raises(InputError) as error:
        components(tmp_path, blocks).connect("taster_resources_server")
    lines = error.value.problems
    assert [line.partition("_resources_server: ")[2].partition(":")[0] for line in lines] == [
        "judge_model_server",
        "judge_responses_create_params",
    ]


def test_files_beside_it_are_modules_also_if_another_folder_has_one_of_that_name(tmp_path: Path):
    for name, value in (("left", 1), ("right", 2)):
        app = LIFE.replace("EVENTS = []", "from rounding import VALUE\nEVENTS = []").replace("len(EVENTS)", "VALUE")
        write_folder(tmp_path, name, app, rounding=f"VALUE = {value}\n")
    both = components(tmp_path, {**config("left"), **config("right")})
    for name in ("left", "right"):
        both.connect(f"{name}_resources_server")
    loaded = [sys.modules[f"velodrome_component_resources_servers_{name}"] for name in ("left", "right")]
    assert [module.VALUE for module in loaded] == [1, 2]


def test_a_real_package_is_never_shadowed(tmp_path: Path):
    """In a process of its own, with a package of that name on the path."""
    real = tmp_path / "site" / "nemo_gym"
    real.mkdir(parents=True)
    (real / "__init__.py").write_text("REAL = True\n")
    script = (
        "from velodrome.serving.folders.gym_names import is_installed, stand_in\n"
        "assert is_installed()\nstand_in()\nimport nemo_gym\nassert nemo_gym.REAL\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(real.parent)!r})\n{script}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_only_files_that_import_the_package_are_theirs(tmp_path: Path):
    for text, theirs in [
        ("import nemo_gym\n", True),
        ("def f():\n    from nemo_gym.x import y\n", True),
        ("# nemo_gym\nimport os\n", False),
        ("import nemo_gymnastics\n", False),
        ("not python nemo_gym\n", False),
    ]:
        path = tmp_path / "app.py"
        path.write_text(text)
        assert (text, uses_nemo_gym(path)) == (text, theirs)
    (tmp_path / "app.py").write_text(TILL)
    assert folder_problems(tmp_path / "app.py") == []


def velo(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "velodrome.cli.main", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("more", [(), ("+num_workers=2",)], ids=["embedded", "workers"])
def test_a_collection_with_its_own_config(tmp_path: Path, more: tuple[str, ...]):
    write_till(tmp_path)
    (tmp_path / "t.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in TILL_TASKS))
    model = {"policy_model": {"responses_api_models": {"scripted_model": {"answers": TILL_SCRIPT}}}}
    (tmp_path / "model.yaml").write_bytes(orjson.dumps(model))
    files = "+config_paths=[resources_servers/till/configs/till.yaml,model.yaml]"
    done = velo(
        tmp_path, "collect", files, "+input_jsonl_fpath=t.jsonl", "+output_jsonl_fpath=r.jsonl", "+num_repeats=4", *more
    )
    assert done.returncode == 0, done.stderr
    rows = [orjson.loads(line) for line in (tmp_path / "r.jsonl").read_bytes().splitlines()]
    by_task = sorted((row["opening"], row["reward"], row["total"], row["calls"]) for row in rows)
    assert by_task == [(0, 1, 2.5, 5)] * 4 + [(1, 0, 3.5, 5)] * 4 + [(10, 1, 12.5, 5)] * 4
