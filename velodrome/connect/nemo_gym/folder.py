"""A resources-server folder of NeMo Gym as an environment, in this process.

Its class makes a FastAPI app, and requests go to the app as they would to a server: the same routes, bodies and
cookies, so the answers are those of the server.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import orjson
from multidict import CIMultiDict, CIMultiDictProxy
from pydantic import BaseModel, ValidationError

from velodrome import http
from velodrome.connect.nemo_gym.asgi import AsgiAnswer, AsgiApp
from velodrome.contracts import Json
from velodrome.errors import CallError, InputError, ModelError, RolloutError, blame
from velodrome.records.response_fields import complete
from velodrome.responses_api_models.conversion import chat_from_response, responses_request
from velodrome.serving.remote import HttpResources, failure_of
from velodrome.settings.names import MODELS

_HOSTED = {"host": "127.0.0.1", "port": 0, "entrypoint": "app.py"}


class FolderEnvironment(HttpResources):
    """An environment whose server is an app in this process. One class is made per folder."""

    server_class: ClassVar[type[Any]]

    def __init__(self, **settings: Any) -> None:
        super().__init__("http://localhost")
        self._about = {}
        models = {key: value for key, value in settings.items() if callable(getattr(value, "respond", None))}
        names = {key: {"type": MODELS, "name": key} for key in models}
        config = _checked(self._field("config"), {**_HOSTED, "name": self.server_class.__name__, **settings, **names})
        _resolve_files(config, Path(inspect.getfile(self.server_class)).parent)
        client = linked_client(self._field("server_client"), models)
        self._app = AsgiApp(self.server_class(config=config, server_client=client).setup_webserver())

    @classmethod
    def _field(cls, name: str) -> Any:
        return cls.server_class.model_fields[name].annotation

    async def _post(
        self,
        route: str,
        body: Any,
        kind: type[RolloutError],
        policy: http.Retry,
        headers: Mapping[str, str] | None = None,
    ) -> http.Reply:
        """Post to the app. Exceptions of its code keep their place."""
        name = route.lstrip("/")
        with blame(kind, name):
            try:
                async with asyncio.timeout(policy.timeout_s):
                    answer = await self._app.post(route, orjson.dumps(body), headers)
            except ModelError as error:  # of a judge, not of the model that is being scored
                failure = kind(f"{name}: {error}")
                failure.away = error.away
                raise failure from error
        target = self._target(route)
        if answer.ok:
            return http.Reply(answer.status, answer.body, answer.headers, target)
        excerpt = target.excerpt(answer.body)
        message = f"{name}: status {answer.status}: {excerpt}"
        call_error = CallError(message, status=answer.status, excerpt=excerpt, body=answer.body)
        raise failure_of(call_error, kind) from call_error

    async def _get(self, route: str, kind: type[RolloutError]) -> Any:
        """None: such a server has no route that describes it."""

    async def deferrable(self) -> bool:
        """Whether `verify` can run later, from the config class; else whether it does not read the session."""
        mode = getattr(getattr(self._field("config"), "REVERIFY_MODE", None), "value", "unknown")
        if mode != "unknown":
            return bool(mode == "stateless")
        return "request" not in inspect.signature(self.server_class.verify).parameters

    async def aclose(self) -> None:
        await self._app.aclose()


def linked_client(base: type[Any], models: Mapping[str, Any]) -> Any:
    """A `ServerClient` of NeMo Gym that calls live models, by the setting that refers to them."""

    class LinkedClient(base):  # type: ignore[misc]  # theirs, or ours that stands in
        async def post(self, server_name: str, url_path: str, **options: Any) -> AsgiAnswer:
            if server_name not in models:
                raise ValueError(f"no model {server_name!r}; the block refers to: {', '.join(models) or 'none'}")
            body = options.get("json")
            body = body.model_dump(exclude_unset=True) if isinstance(body, BaseModel) else body
            answer = await _ask_model(models[server_name], url_path, body or {})
            return AsgiAnswer(200, orjson.dumps(answer), CIMultiDictProxy(CIMultiDict()))

    return LinkedClient.model_construct(head_server_config=None, global_config_dict={})


async def _ask_model(model: Any, route: str, body: Json) -> Json:
    if route == "/v1/responses":
        return complete(await model.respond(body), body)
    if route == "/v1/chat/completions":
        request = responses_request(body)
        return chat_from_response(complete(await model.respond(request), request))
    raise ValueError(f"a model has no route {route}; there are /v1/responses and /v1/chat/completions")


def _checked(kind: type[BaseModel], settings: Json) -> BaseModel:
    try:
        return kind(**settings)
    except ValidationError as error:
        places = ((".".join(map(str, each["loc"])), each["msg"]) for each in error.errors())
        raise InputError(*(f"{place}: {message}" for place, message in places)) from error


def _resolve_files(config: BaseModel, folder: Path) -> None:
    """Make paths of files in the folder absolute, because NeMo Gym runs a server in its folder."""
    for name in type(config).model_fields:
        value = getattr(config, name)
        if name != "entrypoint" and isinstance(value, str) and os.path.isfile(folder / value):
            object.__setattr__(config, name, str(folder / value))


def folder_class(module: ModuleType) -> type[FolderEnvironment] | None:
    """The environment that a module of NeMo Gym's shape defines; None if it defines no server."""
    servers = [
        thing
        for name, thing in vars(module).items()
        if inspect.isclass(thing)
        and thing.__module__ == module.__name__
        and not name.startswith("_")
        and callable(getattr(thing, "setup_webserver", None))
        and callable(getattr(thing, "verify", None))
        and {"config", "server_client"} <= set(getattr(thing, "model_fields", ()))
    ]
    last = [each for each in servers if not any(other is not each and issubclass(other, each) for other in servers)]
    if not last:
        return None
    if len(last) > 1:
        names = ", ".join(each.__name__ for each in last)
        raise InputError(f"{module.__file__}: {len(last)} servers ({names}); there must be exactly one")
    return type(last[0].__name__, (FolderEnvironment,), {"server_class": last[0]})
