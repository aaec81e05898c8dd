"""Who may call a server without a token: by which Host, from which page, with what kind of body."""

from __future__ import annotations

import asyncio

import httpx2

from tests.support.patience import DEADLINE_S
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.callers import Callers
from velodrome.serving.scrape import ScrapeServer
from velodrome.serving.scripted import ScriptedServer

JSON = "application/json"
CALLERS = Callers(["machine", "::1", "velo.example.com"], ["http://127.0.0.1:3000"])


def status(method: str = "POST", **headers: str | None) -> int | None:
    """The status of the refusal, or None; a header is named with _ and left out if it is None."""
    sent = {"host": "127.0.0.1:11001", "content_type": JSON} | headers
    pairs = [
        (name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in sent.items() if value is not None
    ]
    refused = CALLERS.refusal(method, pairs)
    return None if refused is None else refused.status


OWN = """127.0.0.1 127.0.0.1:11001 127.0.0.1.:80 127.8.9.1:1 localhost LocalHost:11001 localhost.:11001 a.localhost:5
    [::1] [::1]:11001 [0:0:0:0:0:0:0:1]:2 [::FFFF:127.0.0.1]:2 machine:11001 Velo.Example.com velo.example.com.:443"""
OTHER = """:11001 evil.example evil.example:11001 127.0.0.1.evil.example localhost.evil.example:11001 notlocalhost
    a.velo.example.com [::1]evil.example [::1]:1@evil.example evil.example@127.0.0.1 127.0.0.1:1:2 ::1:2:evil
    [evil.example] 0.0.0.0:11001 10.0.0.5 [2001:db8::1]:1 \xe9vil"""


def test_own_names_are_answered_to():
    assert {host: status(host=host) for host in OWN.split()} == dict.fromkeys(OWN.split())


def test_other_names_are_not():
    for host in [*OTHER.split(), None, "", "127.0.0.1, evil.example", "127.0.0.1\x00evil"]:
        assert [status(method, host=host) for method in ("GET", "POST", "HEAD", "OPTIONS")] == [421] * 4, host
    assert CALLERS.refusal("GET", [(b"host", b"localhost"), (b"host", b"localhost")]) is not None


OWN_PAGE = ["http://127.0.0.1:11001", "HTTP://127.0.0.1:11001", "https://127.0.0.1:11001"]
MAY_CALL = [None, *OWN_PAGE, "http://127.0.0.1:3000"]
MAY_NOT = ["http://127.0.0.1:11002", "http://localhost:11001", "https://evil.example", "null", "", "127.0.0.1:11001"]


def test_a_page_calls_its_own_server_and_those_that_allow_it():
    for method in ("GET", "POST", "OPTIONS"):
        assert [status(method, origin=origin) for origin in MAY_CALL] == [None] * 5
        assert [status(method, origin=origin) for origin in MAY_NOT] == [403] * 6


IS_JSON = [JSON, "Application/JSON; charset=utf-8", "application/vnd.api+json"]
IS_NOT = [None, "", "text/plain", "text/plain; application/json", "text/plain;charset=application/json"]
IS_NOT += ["application/x-www-form-urlencoded", "multipart/form-data; boundary=application/json", "application/jsonp"]


def test_a_body_is_json():
    assert [status("POST", content_type=kind) for kind in IS_JSON] == [None] * 3
    assert [status("POST", content_type=kind) for kind in IS_NOT] == [415] * 8
    assert [status("GET", content_type=kind) for kind in (*IS_JSON, *IS_NOT)] == [None] * 11


def status_at(url: str, body: bytes | None = None, **headers: str) -> int:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.request("POST" if body else "GET", url, content=body, headers=sent, timeout=DEADLINE_S).status_code


def test_the_scripted_models_own_server_lets_no_page_spend_its_answers():
    async def run() -> list[int]:
        async with ScriptedServer(ScriptedModel(answers=["one"])) as server:
            tries = [
                {"Content_Type": "text/plain"},
                {"Content_Type": JSON, "Origin": "http://evil.example"},
                {"Content_Type": JSON, "Host": "evil.example"},
                {"Content_Type": JSON},
            ]
            url, body = f"{server.url}/responses", b'{"input": "hi"}'
            result = [await asyncio.to_thread(status_at, url, body, **headers) for headers in tries]
            return [*result, await asyncio.to_thread(status_at, f"{server.url}/models", Host="evil.example")]

    assert asyncio.run(run()) == [415, 403, 421, 200, 421]


def test_the_numbers_of_a_collection_are_told_to_nobody_who_gives_another_name():
    server = ScrapeServer(0, lambda: b"numbers")
    try:
        assert [status_at(server.url), status_at(server.url, Host="evil.example")] == [200, 421]
    finally:
        server.close()
