"""Servers that run are found through the head: quickly, or not at all, and never with other settings than given."""

from __future__ import annotations

import socket
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
import yaml

from tests.support.http_server import Quiet, serving
from tests.support.running import free_port
from velodrome.errors import InputError
from velodrome.serving.components import Components, Servers
from velodrome.serving.discovery import find
from velodrome.serving.remote import HttpAgent, HttpModel, HttpResources
from velodrome.settings import Config, Instance

MODEL = "responses_api_models"
AGENT = "responses_api_agents"
RESOURCES = "resources_servers"


def running_server(name: str, kind: str, port: int, host: str = "127.0.0.1") -> dict[str, Any]:
    place = {"url": f"http://{host}:{port}", "host": host, "port": port}
    return {"name": name, "type": kind, **place, "status": "ok", "uptime_s": 1.0}


BLOCKS = {
    "head_server": {"host": "127.0.0.1", "port": 1},
    "m": {MODEL: {"scripted_model": {"answers": ["x"], "api_key": "***", "host": "127.0.0.1", "port": 7001}}},
    "a": {AGENT: {"simple_agent": {"model_server": {"type": MODEL, "name": "m"}, "host": "0.0.0.0", "port": 7002}}},
}
RUNNING = [
    running_server("m", MODEL, 7001),
    running_server("a", AGENT, 7002, "0.0.0.0"),
    running_server("head_server", "head_server", 7000),
]


@contextmanager
def head(instances: Any = RUNNING, blocks: Any = BLOCKS, *, code: int = 200, token: str | None = None) -> Iterator[int]:
    """The port of something that answers as a head does."""
    text = blocks if isinstance(blocks, str) else yaml.safe_dump(blocks)
    answers = {"/server_instances": instances, "/global_config_dict_yaml": text}

    class Handler(Quiet):
        def do_GET(self) -> None:
            allowed = token is None or self.headers["Authorization"] == f"Bearer {token}"
            self.reply(code if allowed else 401, "application/json", orjson.dumps(answers[self.path]))

    with serving(Handler) as url:
        yield int(url.rpartition(":")[2])


def config(port: int, *instances: Instance, **settings: Any) -> Config:
    args = {"head_server": {"port": port}, **settings}
    return Config(args, {each.name: each for each in instances})


def model(**settings: Any) -> Instance:
    return Instance("m", MODEL, "scripted_model", settings, "my.yaml")


def test_without_a_config_it_is_the_one_of_the_servers_that_run():
    with head() as port:
        result, servers = find(config(port, limit=3))
    assert servers.urls == {"m": "http://127.0.0.1:7001", "a": "http://127.0.0.1:7002"}
    assert servers.note == f"using the servers that run at 127.0.0.1:{port}: a, m"
    assert result.agents() == ["a"]
    assert result.instances["a"].references() == {"model_server": "m"}
    assert result.settings == {"head_server": {"port": port}, "limit": 3}


def test_a_server_that_runs_or_has_a_url_is_used_and_any_other_component_is_made_here():
    links = {"model_server": {"type": MODEL, "name": "m"}, "resources_server": {"type": RESOURCES, "name": "r"}}
    mine = Instance("mine", AGENT, "simple_agent", links, "my.yaml")
    theirs = [
        Instance(name, kind, "any", {"url": "http://127.0.0.1:2/", "token": "theirs"}, "my.yaml")
        for name, kind in (("r", RESOURCES), ("other_model", MODEL), ("other_agent", AGENT))
    ]
    same = model(answers=["x"], api_key="a real secret", port=9999)
    with head() as port:
        result, servers = find(config(port, mine, same, *theirs))
    components = Components(result, servers=servers)
    assert type(components.connect("mine")).__name__ == "SimpleAgent"
    clients = {"r": HttpResources, "m": HttpModel, "a": HttpAgent, "other_model": HttpModel, "other_agent": HttpAgent}
    assert {name: type(components.connect(name)) for name in clients} == clients


def test_a_block_that_runs_with_other_settings_is_refused():
    with head() as port, pytest.raises(InputError) as caught:
        find(config(port, model(answers=["y"])))
    assert str(caught.value).startswith(f"m: the server that runs at 127.0.0.1:{port} has other settings")


def test_a_server_of_somebody_else_that_a_head_only_shows_is_used():
    blocks = {"theirs": {AGENT: {"any": {"url": "http://127.0.0.1:2"}}}}
    with head([], blocks) as port:
        result, servers = find(config(port))
    assert servers.note == f"using the servers that run at 127.0.0.1:{port}: theirs"
    assert isinstance(Components(result, servers=servers).connect("theirs"), HttpAgent)


def test_the_list_of_a_nemo_gym_head_is_read():
    """Its `name` is the implementation; the name of the block is its `process_name`."""
    form = {"name": "simple_agent", "host": "127.0.0.1", "port": 7002, "url": "http://127.0.0.1:7002"}
    with head([{"process_name": "a", "server_type": AGENT, **form}]) as port:
        assert find(config(port))[1].urls == {"a": "http://127.0.0.1:7002"}


@pytest.mark.slow
def test_a_head_that_hangs_is_an_error_and_not_taken_for_none():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        with pytest.raises(InputError, match=r"something listens at .* give \+embedded=true to run without servers"):
            find(config(sock.getsockname()[1], model(answers=["x"])))


def test_the_token_is_sent_and_a_wrong_one_is_one_line():
    with head(token="right") as port:
        assert find(config(port, server_token="right"))[1].token == "right"
        for settings in ({}, {"server_token": "wrong"}):
            with pytest.raises(InputError) as caught:
                find(config(port, **settings))
            assert "another token" in str(caught.value)


def test_without_servers_the_config_is_run_here_and_that_is_said():
    args = config(free_port(), model(answers=["x"]))
    result, servers = find(args)
    assert (result, servers.urls) == (args, {})
    assert "running embedded" in servers.note
    with pytest.raises(InputError, match="no config_paths"):
        find(config(free_port()))
    other = Instance("other", MODEL, "scripted_model", {"answers": ["x"]}, "test")
    with head() as port:
        assert "running embedded" in find(config(port, other))[1].note
        args = config(port, model(answers=["another"]))
        assert find(args, embedded=True) == (args, Servers())


def test_a_head_that_lists_no_servers_is_an_error_without_a_config_and_its_blocks_are_never_run_here():
    with head([]) as port:
        with pytest.raises(InputError, match="lists no servers"):
            find(config(port))
        mine = Instance("mine", AGENT, "any", {"model_server": {"type": MODEL, "name": "m"}}, "my.yaml")
        assert [*find(config(port, mine))[0].instances] == ["mine"]
    with head(RUNNING[:1]) as port:
        assert [*find(config(port))[0].instances] == ["m"]


NO_HEAD: list[tuple[Any, Any, str]] = [
    ([{"name": "m"}], BLOCKS, "/server_instances is not a list of servers"),
    (RUNNING, "a: [", "/global_config_dict_yaml is not YAML"),
    (RUNNING, "[1, 2]", "/global_config_dict_yaml is not a mapping"),
]


def test_what_answers_but_is_no_head_is_said_with_a_way_out():
    for instances, blocks, why in NO_HEAD:
        with head(instances, blocks) as port, pytest.raises(InputError) as caught:
            find(config(port))
        assert all(part in str(caught.value) for part in (f"127.0.0.1:{port}", why, "+embedded=true"))


def test_beside_another_program_at_the_address_a_config_is_run_here():
    with head(code=404) as port:
        assert "status 404" in find(config(port, model(answers=["x"])))[1].note
        with pytest.raises(InputError, match="is not a Velodrome head server"):
            find(config(port))

    class NoHttp(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"SSH-2.0-other\r\n\r\n")

    with serving(NoHttp) as url:
        assert "does not speak HTTP" in find(config(int(url.rpartition(":")[2]), model(answers=["x"])))[1].note


def test_a_url_that_is_none_is_one_line():
    for url, why in ((7, "m.url is a text, not 7"), ("ftp://x", "m.url: ValueError: expected a URL that starts with")):
        with pytest.raises(InputError) as caught:
            Components(config(1, model(url=url))).connect("m")
        assert str(caught.value).startswith(f"my.yaml: {why}")
