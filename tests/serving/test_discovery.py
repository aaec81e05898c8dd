"""Servers that run are found through the head: quickly, or not at all, and never with other settings than given."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson
import pytest
import yaml

from velodrome.cli.status import table
from velodrome.errors import InputError
from velodrome.serving.connect import Components, Servers
from velodrome.serving.discovery import find, read_head
from velodrome.serving.remote import HttpAgent, HttpModel, HttpResources
from velodrome.settings import Config, Instance

MODEL = "responses_api_models"
AGENT = "responses_api_agents"
RESOURCES = "resources_servers"


def running_server(name: str, kind: str, port: int, host: str = "127.0.0.1") -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "url": f"http://{host}:{port}",
        "host": host,
        "port": port,
        "status": "ok",
        "uptime_s": 1.0,
    }


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
def head(
    instances: Any = RUNNING, blocks: Any = BLOCKS, *, status: int = 200, token: str | None = None
) -> Iterator[int]:
    """The port of something that answers as a head does."""
    text = blocks if isinstance(blocks, str) else yaml.safe_dump(blocks)
    answers = {"/server_instances": instances, "/global_config_dict_yaml": text}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = token is None or self.headers["Authorization"] == f"Bearer {token}"
            body = orjson.dumps(answers[self.path])
            self.send_response(status if allowed else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def config(port: int, *instances: Instance, **settings: Any) -> Config:
    args = {"head_server": {"port": port}, **settings}
    return Config(args, {each.name: each for each in instances})


def model(**settings: Any) -> Instance:
    return Instance("m", MODEL, "scripted_model", settings, "my.yaml")


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def test_without_a_config_it_is_the_one_of_the_servers_that_run():
    with head() as port:
        result, servers = find(config(port, limit=3))
    assert servers == Servers(
        {"m": "http://127.0.0.1:7001", "a": "http://127.0.0.1:7002"},
        None,
        f"using the servers that run at 127.0.0.1:{port}: a, m",
    )
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
    assert str(caught.value) == (
        f"m: the server that runs at 127.0.0.1:{port} has other settings than the ones given here; "
        "leave config_paths out to use it as it is, or give +embedded=true to run without servers"
    )


def test_without_servers_the_config_is_run_here_and_that_is_said(closed_port: int):
    args = config(closed_port, model(answers=["x"]))
    note = f"no servers run at 127.0.0.1:{closed_port}: running embedded, without servers"
    assert find(args) == (args, Servers(note=note))


def test_servers_at_the_urls_of_a_config_are_not_said_to_run_here(closed_port: int):
    url, links = "http://127.0.0.1:2", {"resources_server": {"type": RESOURCES, "name": "r"}}
    theirs = Instance("theirs", AGENT, "any", {"url": url}, "my.yaml")
    environment = Instance("r", RESOURCES, "any", {"url": url}, "my.yaml")
    mine = Instance("mine", AGENT, "simple_agent", links, "my.yaml")

    def said(*instances: Instance, port: int = closed_port, **how: Any) -> tuple[bool, str]:
        """Whether something is said to run here, and the servers that are named."""
        _, rest = find(config(port, *instances), **how)[1].note.split(f"{port}: ", 1)
        return "in this process" in rest, rest.rpartition(": ")[2]

    assert said(theirs, environment) == (False, "r, theirs")
    assert said(mine, environment) == (True, "r")
    assert said(mine, environment, scoring=True) == (False, "r")
    with head() as port:
        assert said(theirs, environment, port=port) == (False, "r, theirs")


def test_without_servers_and_without_a_config_there_is_nothing_to_run(closed_port: int):
    with pytest.raises(InputError, match=rf"^no servers run at 127.0.0.1:{closed_port}, and no config_paths are given"):
        find(config(closed_port))


def test_a_config_of_which_nothing_runs_is_embedded_and_said_to_be():
    with head() as port:
        other = Instance("other", "responses_api_models", "scripted_model", {"answers": ["x"]}, "test")
        _, servers = find(Config({"head_server": {"host": "127.0.0.1", "port": port}}, {"other": other}))
    assert servers.note == f"none of these servers runs at 127.0.0.1:{port}: running embedded, without servers"


def test_a_head_that_lists_no_servers_is_an_error_without_a_config_and_its_blocks_are_never_run_here():
    with head([]) as port:
        with pytest.raises(InputError, match=rf"^the head server at 127.0.0.1:{port} lists no servers, and no config_"):
            find(config(port))
        mine = Instance("mine", AGENT, "any", {"model_server": {"type": MODEL, "name": "m"}}, "my.yaml")
        assert [*find(config(port, mine))[0].instances] == ["mine"]
    with head(RUNNING[:1]) as port:
        assert [*find(config(port))[0].instances] == ["m"]


def test_a_server_of_somebody_else_that_a_head_only_shows_is_used():
    blocks = {"theirs": {AGENT: {"any": {"url": "http://127.0.0.1:2"}}}}
    with head([], blocks) as port:
        result, servers = find(config(port))
    assert servers.note == f"using the servers that run at 127.0.0.1:{port}: theirs"
    assert isinstance(Components(result, servers=servers).connect("theirs"), HttpAgent)


def test_the_list_of_a_nemo_gym_head_is_read():
    """Its `name` is the implementation; the name of the block is its `process_name`."""
    kinds = {"m": (MODEL, "scripted_model", "127.0.0.1"), "a": (AGENT, "simple_agent", "0.0.0.0")}
    listed = [
        {
            "process_name": name,
            "server_type": kind,
            "name": form,
            "host": host,
            "port": port,
            "url": f"http://127.0.0.1:{port}",
        }
        for port, (name, (kind, form, host)) in enumerate(kinds.items(), 7001)
    ]
    with head(listed) as port:
        _, servers = find(config(port))
        known = read_head({"head_server": {"port": port}})
    assert servers.urls == {"m": "http://127.0.0.1:7001", "a": "http://127.0.0.1:7002"}
    assert known is not None
    assert [line.split() for line in table(known.instances).splitlines()[1:]] == [
        [name, kind, "unknown", url, "-", "-", "-"]
        for (name, (kind, *_)), url in zip(kinds.items(), servers.urls.values(), strict=True)
    ]


def test_embedded_asks_nobody():
    with head() as port:
        args = config(port, model(answers=["another"]))
        assert find(args, embedded=True) == (args, Servers())


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
            assert str(caught.value) == (
                f"the head server at 127.0.0.1:{port} wants another token: "
                "set VELODROME_TOKEN, or server_token in env.yaml"
            )


def test_another_program_at_the_address_is_named_and_a_config_is_run_here():
    with head(status=404) as port:
        what = f"what answers at 127.0.0.1:{port} is not a Velodrome head server (it answers with status 404)"
        note = f"{what}: running embedded, without servers"
        assert find(config(port, model(answers=["x"])))[1] == Servers(note=note)
        with pytest.raises(InputError, match="is not a Velodrome head server"):
            find(config(port))


def test_a_program_that_does_not_speak_http_is_no_head():
    def greet() -> None:
        for _ in range(2):
            connection, _ = sock.accept()
            with connection:
                connection.sendall(b"SSH-2.0-other\r\n\r\n")
                while connection.recv(4096):
                    pass

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        thread = threading.Thread(target=greet)
        thread.start()
        note = find(config(sock.getsockname()[1], model(answers=["x"])))[1].note
        thread.join()
    assert "is not a Velodrome head server (it does not speak HTTP): running embedded" in note


@pytest.mark.parametrize(
    ("instances", "blocks", "why"),
    [
        ({"a": 1}, BLOCKS, "/server_instances is not a list of servers"),
        ([{"name": "m"}], BLOCKS, "/server_instances is not a list of servers"),
        (RUNNING, "a: [", "/global_config_dict_yaml is not YAML"),
        (RUNNING, "[1, 2]", "/global_config_dict_yaml is not a mapping"),
    ],
)
def test_what_answers_but_is_no_head_is_said_with_a_way_out(instances: Any, blocks: Any, why: str):
    with head(instances, blocks) as port, pytest.raises(InputError) as caught:
        find(config(port))
    assert str(caught.value) == (
        f"what answers at 127.0.0.1:{port} is not a Velodrome head server ({why}); "
        "give +head_server.port=…, or +embedded=true to run without servers"
    )


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (7, "m.url is a text, not 7"),
        ("ftp://x", "m.url: ValueError: expected a URL that starts with http:// or https://"),
    ],
)
def test_a_url_that_is_none_is_one_line(url: Any, why: str):
    with pytest.raises(InputError) as caught:
        Components(config(1, model(url=url))).connect("m")
    assert str(caught.value) == f"my.yaml: {why}"
