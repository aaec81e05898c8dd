"""An agent that answers `/v1/responses` or `/v1/chat/completions` anywhere; our environment verifies its answer.

It gets one call, with the task's conversation, and uses its own model and tools. Its answer, with the results of its
tools, is the rollout. If the environment is a server, it can offer the tools of the session to the agent by MCP. A
failure of the agent is an `AgentError`.
"""

from __future__ import annotations

from http.cookies import SimpleCookie
from typing import Any

from velodrome.contracts import Json, Model, Resources, Turns, as_task, ask
from velodrome.errors import AgentError, InputError, ModelError, TaskError, ToolError, VerifyError, blame
from velodrome.records.turns import Conversation
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.settings.component import Component, Field
from velodrome.timing.spans import span


class RemoteAgent(Component):
    """An agent behind HTTP: one call per rollout, then verify."""

    agent_server: Model = Field(
        description="where it is: `{type: responses_api_models, name: INSTANCE}` of an `openai_model` with"
        " `is_agent: true`"
    )
    environment: Resources = Field(
        validation_alias="resources_server", description="the environment: `{type: resources_servers, name: INSTANCE}`"
    )
    timeout_s: float = Field(3600.0, gt=0, description="one rollout; one that takes longer fails")
    offer_mcp: bool = Field(
        False, description="give it the environment's tools as an MCP server; the environment must be a server"
    )

    def setup(self) -> None:
        """Create the `simple_agent` that enforces the time limit and closes the sessions."""
        parts: Json = {"model": self.agent_server, "environment": self.environment, "timeout_s": self.timeout_s}
        self._simple_agent = SimpleAgent(**parts)
        self._mcp_url = str(getattr(self.environment, "url", "") or "")
        if self.offer_mcp and not self._mcp_url:
            raise InputError(
                "offer_mcp: the environment runs in this process, and an agent elsewhere cannot reach it: velo run"
                " serves it, or give its block a url (docs/theirs.md#an-agent-anywhere)"
            )

    async def run(self, task: str | Json, *, verify: bool = True) -> Json:
        """Run one task, from its prompt to its score. A text is a task with that prompt."""
        talk = Conversation()
        return await self._simple_agent.in_time(self._run(as_task(task), talk, verify), talk)

    async def respond(self, request: Json) -> Json:
        """The agent's answer; nothing is verified."""
        talk = Conversation()
        return await self._simple_agent.in_time(self._answer("", request, talk), talk)

    async def deferrable(self) -> bool:
        """Whether verification can run later."""
        return await self.environment.deferrable()

    async def aclose(self) -> None:
        """Nothing to close."""

    async def _run(self, task: Json, talk: Conversation, verify: bool) -> Json:
        with span("session"), blame(ToolError, "seed_session"):
            session = await self.environment.open(task)
        try:
            if isinstance(self.environment, Turns) and await self.environment.begin(session, task) is not None:
                raise TaskError("the environment takes turns, and remote_agent answers once; use simple_agent")
            request = task["responses_create_params"]
            response = await self._answer(session, request, talk)
            result = {**task, "responses_create_params": request}
            if verify:
                with span("verify"), blame(VerifyError, "verify"):
                    result |= await self.environment.score(session, task, response)
        finally:
            await self._simple_agent.close_session(session)
        return {**result, "response": response}

    async def _answer(self, session: str, request: Json, talk: Conversation) -> Json:
        """The agent's Response. Tools of the environment are not sent, because nothing here would run them."""
        agent_request = {name: value for name, value in request.items() if name not in ("tools", "tool_choice")}
        if self.offer_mcp and session:
            agent_request["tools"] = [self._mcp_tool(session)]
        talk.begin(request)
        try:
            talk.add([await ask(self.agent_server, agent_request, by_agent=True)])
        except ModelError as error:
            agent_error = AgentError(str(error))
            agent_error.away, agent_error.place = error.away, error.place
            raise agent_error from error
        return talk.response()

    def _mcp_tool(self, session: str) -> Json:
        """The environment's `/mcp` as an OpenAI MCP tool; the session's cookie is the token."""
        cookies: Any = SimpleCookie(session)
        token = next(iter(cookies.values())).value if cookies else ""
        return {
            "type": "mcp",
            "server_label": "environment",
            "server_url": f"{self._mcp_url}/mcp",
            "authorization": token,
            "require_approval": "never",
        }
