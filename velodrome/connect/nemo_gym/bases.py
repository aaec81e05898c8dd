"""The base classes that a resources server of NeMo Gym derives from, for folders that run here without that package.

They have the names and the behaviour that such a server relies on: a FastAPI app with `/seed_session` and `/verify`, a
session per cookie, and a client for the models that its config refers to.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.middleware.sessions import SessionMiddleware
from starlette.responses import Response as WebResponse

from velodrome.connect.nemo_gym.types import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from velodrome.errors import ModelError
from velodrome.settings.files import find_input

SESSION_ID_KEY = "session_id"
TASK_INDEX_KEY_NAME = "_ng_task_index"
ROLLOUT_INDEX_KEY_NAME = "_ng_rollout_index"


class ModelServerRef(BaseModel):
    type: Literal["responses_api_models"]
    name: str


class ResourcesServerRef(BaseModel):
    type: Literal["resources_servers"]
    name: str


class AgentServerRef(BaseModel):
    type: Literal["responses_api_agents"]
    name: str


class BaseServerConfig(BaseModel):
    host: str
    port: int
    num_workers: int | None = None


class BaseRunServerConfig(BaseServerConfig):
    entrypoint: str
    domain: str | None = None


class BaseRunServerInstanceConfig(BaseRunServerConfig):
    name: str


class ReverifyMode(StrEnum):
    STATELESS = "stateless"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"


class BaseResourcesServerConfig(BaseRunServerInstanceConfig):
    expose_tools_over_mcp: bool = False
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNKNOWN


class ServerClient(BaseModel):
    """Calls other servers by name. In this package, its subclass calls the models of a block."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    head_server_config: Any = None
    global_config_dict: Any = Field(default_factory=dict)

    async def post(self, server_name: str, url_path: str, **options: Any) -> Any:
        raise NotImplementedError

    async def get(self, server_name: str, url_path: str, **options: Any) -> Any:
        raise NotImplementedError


class BaseServer(BaseModel):
    config: BaseRunServerInstanceConfig


class SimpleServer(BaseServer):
    """A server with sessions."""

    server_client: ServerClient

    def setup_webserver(self) -> FastAPI:
        raise NotImplementedError

    def get_session_middleware_key(self) -> str:
        return f"{type(self).__name__}___{self.config.name}"

    def setup_session_middleware(self, app: FastAPI) -> None:
        """Give each session an id, which its cookie carries."""

        async def with_session(request: Request, call_next: Callable[[Request], Awaitable[WebResponse]]) -> WebResponse:
            request.session[SESSION_ID_KEY] = request.session.get(SESSION_ID_KEY) or str(uuid.uuid4())
            return await call_next(request)

        app.middleware("http")(with_session)  # runs inside the one that is added after it
        key = self.get_session_middleware_key()
        app.add_middleware(SessionMiddleware, secret_key=key, session_cookie=key)

    @classmethod
    def run_webserver(cls) -> NoReturn:
        raise SystemExit(f"{cls.__name__}: start it with velo run +config_paths=[…] (docs/from-nemo-gym.md)")


class BaseRunRequest(BaseModel):
    responses_create_params: NeMoGymResponseCreateParamsNonStreaming


class BaseVerifyRequest(BaseRunRequest):
    response: NeMoGymResponse


class BaseVerifyResponse(BaseVerifyRequest):
    reward: float
    mask_sample: bool = False  # true: the reward is not valid, which here fails the rollout
    failure_kind: str | None = None
    failure_reason: str | None = None


class BaseMultiRewardVerifyResponse(BaseVerifyResponse):
    reward_components: dict[str, float]


class BaseSeedSessionRequest(BaseModel):
    pass


class BaseSeedSessionResponse(BaseModel):
    pass


class AggregateMetricsRequest(BaseModel):
    verify_responses: list[dict[str, Any]]


class AggregateMetrics(BaseModel):
    agent_metrics: dict[str, Any] = Field(default_factory=dict)
    key_metrics: dict[str, Any] = Field(default_factory=dict)
    group_level_metrics: list[dict[str, Any]] = Field(default_factory=list)


class BaseResourcesServer(BaseServer):
    config: BaseResourcesServerConfig


class SimpleResourcesServer(BaseResourcesServer, SimpleServer):
    """An environment: routes that `setup_webserver` adds are its tools, and `verify` gives the reward."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    stands_in: ClassVar[bool] = True

    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = FastAPI()
        self.setup_session_middleware(app)
        app.post("/seed_session")(self.seed_session)
        app.post("/verify")(self.verify)
        return app

    async def seed_session(self, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse:
        return BaseSeedSessionResponse()

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        raise NotImplementedError

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        return {}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        return {}


async def get_response_json(response: Any) -> Any:
    """The JSON of an answer; raises if its status is an error."""
    response.raise_for_status()
    return await response.json()


async def raise_for_status(response: Any) -> None:
    response.raise_for_status()


class JudgeError(Exception):
    """A judge gave no answer."""


async def reraise_judge_errors(call: Awaitable[Any]) -> Any:
    """The result of a call to a judge. Raises `JudgeError` if it fails."""
    try:
        return await call
    except (ModelError, RuntimeError, ValueError, OSError) as error:
        raise JudgeError(f"{type(error).__name__}: {error}") from error


run_judge = reraise_judge_errors


async def call_judge(
    server_client: ServerClient, *, server_name: str, url_path: str, json: Any, response_model: type[BaseModel]
) -> Any:
    """The answer of a judge, as this type."""
    answer = await reraise_judge_errors(server_client.post(server_name=server_name, url_path=url_path, json=json))
    return response_model.model_validate(await reraise_judge_errors(get_response_json(answer)))


class PromptConfig(BaseModel):
    user: str
    system: str | None = None


def load_prompt_config(path: str) -> PromptConfig:
    """The prompts in a YAML file of the working directory, or of the package."""
    import yaml

    return PromptConfig.model_validate(yaml.safe_load(find_input(Path(path)).read_text(encoding="utf-8")))


def fill_prompt(prompt_config: PromptConfig, row: dict[str, Any]) -> list[dict[str, str]]:
    """The messages of a row; prompts refer to its fields as `{name}`."""
    prompts = {"system": prompt_config.system, "user": prompt_config.user}
    return [{"role": role, "content": text.format_map(row)} for role, text in prompts.items() if text is not None]
