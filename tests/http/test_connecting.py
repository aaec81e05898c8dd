"""Connecting to a server is a wait of its own where it takes long."""

from __future__ import annotations

from itertools import count

from tests.http.coroutines import in_a_loop
from velodrome import http
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.scripted import ScriptedServer
from velodrome.timing import spans


@in_a_loop
async def test_a_connection_that_takes_long_to_make_is_a_span_and_one_that_is_there_is_none() -> None:
    ticks = count()
    client = http.Http()
    async with ScriptedServer(ScriptedModel(answers=["36"])) as server:
        target = http.Target(f"{server.url}/responses")
        with spans.root("rollout", lambda: float(next(ticks))) as root:
            for _ in range(2):
                with spans.span("model"):
                    await client.post(target, b'{"input": "what?"}', http.Retry(max_retries=0))
        await client.aclose()
    assert [[each.name for each in call.children] for call in root.children] == [["connection"], []]
