"""Find the running servers through the head server, within a short time-out.

A running server is used under its name. A block in the config must equal the block that runs, because the rollouts
would otherwise come from other settings than the recorded ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

from velodrome.contracts import Json
from velodrome.errors import InputError
from velodrome.serving.components import Servers
from velodrome.serving.process.listen import head_address, is_wildcard, reachable, server_token
from velodrome.serving.process.probe import fetch, listens
from velodrome.settings import KINDS, Config, Instance
from velodrome.settings.names import AGENTS

TIMEOUT_S = 5.0
_PLACE = frozenset(("host", "port", "num_workers", "entrypoint"))  # settings that do not change what a server does


class _ForeignError(InputError):
    """Another program has the address of the head server."""

    def __init__(self, address: str, why: str) -> None:
        self.what = f"the program that answers at {address} is not a Velodrome head server ({why})"
        super().__init__(f"{self.what}; give +head_server.port=…, or +embedded=true to run without servers")


@dataclass(frozen=True)
class Head:
    """The report of the head server: the servers, their state, and the blocks they were started with."""

    address: str
    instances: list[Json]
    blocks: dict[str, Instance]


def find(config: Config, *, embedded: bool = False, scoring: bool = False) -> tuple[Config, Servers]:
    """The configuration with the blocks of the running servers, and their addresses.

    Without servers, the configuration is unchanged and runs in this process. For `scoring`, an agent is only the name
    of an environment, so running agents are not used.
    """
    if embedded:
        return config, Servers()
    host, port = head_address(config.settings)
    names = {name for name, block in config.instances.items() if not (scoring and block.kind == AGENTS)}
    try:
        head = read_head(config.settings)
    except _ForeignError as error:
        if not config.instances:
            raise
        return config, Servers(note=f"{error.what}: {_places(config, names)}")
    if head is None:
        if not config.instances:
            raise InputError(
                f"no servers run at {host}:{port}, and no config_paths are given: start them with velo run, "
                "or give +config_paths=[…] to run without servers"
            )
        return config, Servers(note=f"no servers run at {host}:{port}: {_places(config, names)}")
    _refuse_changed_settings(config, head, names)
    urls = {each["name"]: _url(each, host) for each in head.instances if each["name"] in head.blocks}
    running = {name: block for name, block in head.blocks.items() if name in urls or "url" in block.settings}
    if not (running or config.instances):
        raise InputError(
            f"the head server at {head.address} lists no servers, and no config_paths are given: wait until they run, "
            "or give +config_paths=[…] with the url of each (see docs/serving.md#servers-that-others-run)"
        )
    used = sorted(urls.keys() & names if config.instances else running)
    note = f"using the servers that run at {head.address}: {', '.join(used)}"
    if not used:
        note = f"none of these servers runs at {head.address}: {_places(config, names)}"
    whole = Config(config.settings, {**running, **config.instances})
    token = server_token(config.settings)
    return whole, Servers(urls, token, note, asyncio.run(_sources(urls, token)))


def _places(config: Config, names: AbstractSet[str]) -> str:
    """Where the components run if no head lists them: at the `url` of their blocks, or in this process."""
    elsewhere = sorted(name for name in names if "url" in config.instances[name].settings)
    if not elsewhere:
        return "running embedded, without servers"
    listed = ", ".join(elsewhere)
    if len(elsewhere) == len(names):
        return f"using the servers at the urls in the config: {listed}"
    return f"running embedded, in this process, with the servers at the urls in the config: {listed}"


def read_head(settings: Mapping[str, Any]) -> Head | None:
    """The head's report, or None if no head runs; it takes a few seconds at most."""
    return asyncio.run(_read_head(settings))


async def _read_head(settings: Mapping[str, Any]) -> Head | None:
    host, port = head_address(settings)
    address = f"{host}:{port}"
    token = server_token(settings)
    client_host = reachable(host).strip("[]")
    answers = await asyncio.gather(
        *(
            fetch(client_host, port, path, timeout_s=TIMEOUT_S, token=token)
            for path in ("/server_instances", "/global_config_dict_yaml")
        )
    )
    if any(answer is not None and answer[0] == 401 for answer in answers):
        raise InputError(
            f"the head server at {address} wants another token: set VELODROME_TOKEN, or server_token in env.yaml"
        )
    if None in answers and await listens(client_host, port, timeout_s=TIMEOUT_S):
        raise InputError(
            f"something listens at {address} but does not answer as a head server within {TIMEOUT_S:g} s; "
            "try again, or give +embedded=true to run without servers"
        )
    replies = [answer for answer in answers if answer is not None]
    if len(replies) != len(answers):
        return None
    try:
        instances, text = (_body(*answer) for answer in replies)
        return Head(address, _server_list(instances), _blocks(text))
    except ValueError as error:
        raise _ForeignError(address, str(error)) from error


def _body(status: int, body: bytes) -> Any:
    if status != 200:
        raise ValueError(f"it answers with status {status}" if status else "it does not speak HTTP")
    return orjson.loads(body)


async def _sources(urls: Mapping[str, str], token: str | None) -> dict[str, str]:
    """The digests of the code that the servers loaded, as far as they report it."""
    places = [urlsplit(url) for url in urls.values()]
    answers = await asyncio.gather(
        *(fetch(place.hostname or "", place.port or 80, "/", timeout_s=TIMEOUT_S, token=token) for place in places)
    )
    digests = {}
    for name, answer in zip(urls, answers, strict=True):
        with suppress(ValueError, TypeError, KeyError):
            digests[name] = str(orjson.loads(answer[1])["source"]) if answer is not None else ""
    return {name: digest for name, digest in digests.items() if digest}


def _server_list(instances: Any) -> list[Json]:
    names = {"name", "type", "url", "host", "port", "status"}
    if isinstance(instances, list) and all(isinstance(each, dict) for each in instances):
        servers = [_renamed(each) for each in instances]
        if all(names <= each.keys() for each in servers):
            return servers
    raise ValueError("/server_instances is not a list of servers")


def _renamed(server: Json) -> Json:
    """A server of NeMo Gym's list with our keys. There, `name` is the implementation and `status` is never set."""
    if "type" in server or not {"process_name", "server_type"} <= server.keys():
        return server
    return {**server, "name": server["process_name"], "type": server["server_type"], "status": "unknown"}


def _blocks(text: Any) -> dict[str, Instance]:
    import yaml

    try:
        data = yaml.safe_load(text) if isinstance(text, str) else None
    except yaml.YAMLError as error:
        raise ValueError("/global_config_dict_yaml is not YAML") from error
    if not isinstance(data, dict):
        raise ValueError("/global_config_dict_yaml is not a mapping")
    blocks = {}
    for name, value in data.items():
        if isinstance(value, dict) and len(value) == 1 and (kind := next(iter(value))) in KINDS:
            [(implementation, settings)] = value[kind].items()
            blocks[name] = Instance(name, kind, implementation, settings, "the head server")
    return blocks


def _url(server: Json, head_host: str) -> str:
    """The URL of a server. One that listens on every address is reached at the host of its head."""
    host = head_host if is_wildcard(server["host"]) else server["host"]
    return f"http://{reachable(host)}:{server['port']}"


def _refuse_changed_settings(config: Config, head: Head, names: AbstractSet[str]) -> None:
    masked = config.masked()
    problems = []
    for name in sorted(names & head.blocks.keys()):
        running, ours = head.blocks[name], config.instances[name]
        shown = masked[name][ours.kind][ours.implementation]
        same = (ours.kind, ours.implementation) == (running.kind, running.implementation)
        if not same or _content(shown) != _content(running.settings):
            problems.append(
                f"{name}: the server that runs at {head.address} has other settings than the ones given here; "
                "leave config_paths out to use it as it is, or give +embedded=true to run without servers"
            )
    if problems:
        raise InputError(*problems)


def _content(settings: Mapping[str, Any]) -> Json:
    return {key: value for key, value in settings.items() if key not in _PLACE}
