"""Resources-server folders in NeMo Gym's shape, for the tests: a till with sessions, and a taster with a judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

Json = dict[str, Any]

TILL = """
from typing import Optional

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, Field

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.reward_profile import highest_k_metrics
from nemo_gym.server_utils import SESSION_ID_KEY
from rounding import in_cents


class TillConfig(BaseResourcesServerConfig):
    discount: float = 0.0


class TillRunRequest(BaseRunRequest):
    expected_total: float
    note: Optional[str] = None


class TillSeedRequest(BaseSeedSessionRequest):
    opening: float


class TillVerifyRequest(TillRunRequest, BaseVerifyRequest):
    pass


class TillVerifyResponse(BaseVerifyResponse):
    total: float
    said: str
    calls: int
    expected_total: float


class Item(BaseModel):
    name: str
    price: float
    count: int = 1


class Total(BaseModel):
    total: float


class TillResourcesServer(SimpleResourcesServer):
    config: TillConfig
    totals: dict[str, float] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add_item")(self.add_item)
        app.post("/total")(self.total)
        app.post("/jam")(self.jam)
        return app

    async def seed_session(self, request: Request, body: TillSeedRequest) -> BaseSeedSessionResponse:
        self.totals[request.session[SESSION_ID_KEY]] = body.opening
        return BaseSeedSessionResponse()

    async def add_item(self, request: Request, body: Item) -> Total:
        if body.price < 0:
            raise HTTPException(422, "a price is not below zero")
        session = request.session[SESSION_ID_KEY]
        self.totals[session] += in_cents(body.price * body.count * (1 - self.config.discount))
        return Total(total=self.totals[session])

    def total(self, request: Request) -> Total:
        return Total(total=self.totals[request.session[SESSION_ID_KEY]])

    async def jam(self) -> None:
        raise RuntimeError("the drawer is jammed")

    def get_key_metrics(self, agent_metrics):
        return highest_k_metrics(agent_metrics, "pass@1")

    async def verify(self, request: Request, body: TillVerifyRequest) -> TillVerifyResponse:
        total = self.totals.pop(request.session[SESSION_ID_KEY])
        said, calls = "", 0
        for item in body.response.output:
            if item.type == "message":
                said = "".join(part.text for part in item.content if part.type == "output_text")
            elif item.type == "function_call":
                calls += 1
        right = abs(total - body.expected_total) < 0.005 and f"{total:.2f}" in said
        return TillVerifyResponse(**body.model_dump(), reward=float(right), total=total, said=said, calls=calls)


if __name__ == "__main__":
    TillResourcesServer.run_webserver()
"""

ROUNDING = """
def in_cents(amount: float) -> float:
    return round(amount, 2)
"""

TASTER = """
from nemo_gym.base_resources_server import BaseResourcesServerConfig, SimpleResourcesServer
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import NeMoGymEasyInputMessage, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json


class TasterConfig(BaseResourcesServerConfig):
    judge_model_server: ModelServerRef
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming


class TasterResponse(BaseVerifyResponse):
    verdict: str


class TasterResourcesServer(SimpleResourcesServer):
    config: TasterConfig

    async def verify(self, body: BaseVerifyRequest) -> TasterResponse:
        params = self.config.judge_responses_create_params.model_copy(deep=True)
        params.input = [NeMoGymEasyInputMessage(role="user", content="Is it good? " + body.response.output_text)]
        answer = await self.server_client.post(
            server_name=self.config.judge_model_server.name, url_path="/v1/responses", json=params
        )
        judged = NeMoGymResponse.model_validate(await get_response_json(answer))
        verdict = judged.output[-1].content[-1].text
        return TasterResponse(**body.model_dump(), reward=1.0 if verdict == "yes" else 0.0, verdict=verdict)
"""


def write_folder(root: Path, name: str, app: str, **files: str) -> Path:
    """`resources_servers/NAME` with its app and what is beside it."""
    folder = root / "resources_servers" / name
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(app)
    for module, text in files.items():
        (folder / f"{module}.py").write_text(text)
    return folder


def config(name: str, **settings: Any) -> Json:
    """The blocks of a folder's environment and of its agent, as in configs/NAME.yaml."""
    agent = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": f"{name}_resources_server"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    block = {"entrypoint": "app.py", "domain": "other", "verified": False, **settings}
    return {
        f"{name}_resources_server": {"resources_servers": {name: block}},
        f"{name}_simple_agent": {"responses_api_agents": {"simple_agent": agent}},
    }


def write_till(root: Path, **settings: Any) -> Path:
    folder = write_folder(root, "till", TILL, rounding=ROUNDING)
    (folder / "configs").mkdir()
    (folder / "configs" / "till.yaml").write_bytes(orjson.dumps(config("till", **settings)))
    return folder


def till_task(opening: float, expected: float) -> Json:
    params = {"input": [{"role": "user", "content": "Ring up two pears at 1.25."}]}
    return {"responses_create_params": params, "opening": opening, "expected_total": expected}


TILL_TASKS = [till_task(0, 2.5), till_task(10, 12.5), till_task(1, 99)]
TILL_SCRIPT: list[Any] = [
    {
        "tool_calls": [
            {"name": "add_item", "arguments": {"name": "pear", "price": 1.25, "count": 2}},
            {"name": "add_item", "arguments": {"name": "pear", "price": -1}},
            {"name": "add_item", "arguments": {"name": "pear", "price": "dear"}},
            {"name": "no_such_tool", "arguments": {}},
        ]
    },
    {"tool_calls": [{"name": "total"}]},
    "Together 2.50, or 12.50: {tool_result}",
]
