"""A judge: one call, here and over HTTP, and whose fault it is when it fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.resources_servers.playing import Judge, documented, says
from velodrome import Environment, http, tool
from velodrome.errors import ModelError, ToolError, VerifyError
from velodrome.records.conversation import Response
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.remote import HttpModel
from velodrome.serving.scripted import ScriptedServer
from velodrome.timing.spans import root


@pytest.mark.parametrize("where", ["here", "behind HTTP"])
def test_the_documented_judge_works_here_and_behind_a_server(where: str):
    async def main() -> Any:
        judge = ScriptedModel(answers=["I think so: YES"])
        async with ScriptedServer(judge) as server:
            linked = judge if where == "here" else HttpModel(server.url.removesuffix("/v1"))
            environment = documented("from velodrome import Environment, Model\n\n\nclass Polite")["Polite"](
                judge=linked
            )
            with root("rollout") as spans:
                score = await environment.score("1", {}, says("If you please."))
            await environment.aclose()
            await http.close_shared()
        return score, [part.name for part in spans.walk()]

    score, names = asyncio.run(main())
    assert score == {"reward": 1.0, "judge_said": "I think so: YES"}
    assert "judge" in names


class Asking(Environment):
    judge: Any
    other: int = 0

    @tool
    async def look(self) -> str:
        """Look."""
        return str((await self.judge.ask([{"role": "user", "content": "hm?"}])).text)

    async def verify(self, task: Any, response: Response) -> Any:
        answer = await self.judge.ask("right?")
        assert type(answer) is type(response)
        return 1.0


@pytest.mark.parametrize("answer", [ModelError("503"), RuntimeError("boom"), {"output": []}, None])
def test_a_judge_that_fails_is_a_fault_of_the_code_that_asked_and_not_of_the_model(answer: Any):
    environment = Asking(judge=Judge(answer))
    with pytest.raises(VerifyError, match=r"^verify: judge: ") as verified:
        asyncio.run(environment.score("1", {}, says("x")))
    with pytest.raises(ToolError, match=r"^look: judge: ") as called:
        asyncio.run(environment.call("1", "look", {}))
    assert "tests/resources_servers/test_linked.py:" in str(verified.value.place)
    assert "tests/resources_servers/test_linked.py:" in str(called.value.place)
