"""An environment of verifiers as a server: `verifiers_program.py PACKAGE '{"argument": …}'`.

Releases from 0.4 on have tasksets (`verifiers.v1`), earlier ones environments (`load_environment`); a package of
either kind works with the release that it is installed with.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # never imported: there is no velodrome where this runs
    from velodrome.connect.programs.adapter_wire import (
        Adapter,
        AdapterFault,
        Json,
        chat_messages,
        function_tool,
        serve,
        take_stdio,
        text_of,
    )
else:
    from adapter_wire import Adapter, AdapterFault, Json, chat_messages, function_tool, serve, take_stdio, text_of

ROW = "verifiers"  # the field of a task with its row in the data set


def module_name(package: str) -> str:
    """`owner/my-env@1` is installed as `my_env`."""
    return package.rsplit("/", 1)[-1].split("@", 1)[0].replace("-", "_")


def row_of(task: Json) -> Json:
    """The row of the data set in a task."""
    row = task.get(ROW)
    if not isinstance(row, dict):
        raise AdapterFault(
            "TaskError", f'no "{ROW}" in the task: it holds the row of the data set that velo env add wrote'
        )
    return row


def as_item(message: Json) -> Json:
    """A chat message as an item of a request."""
    return {"role": message["role"], "content": text_of(message["content"])}


class TasksetAdapter(Adapter):
    """A taskset of `verifiers.v1`: prompts, tools of its toolsets in this process, rewards that need no sandbox."""

    def __init__(self, package: str, arguments: Json) -> None:
        self.vf = importlib.import_module("verifiers.v1")
        loaders = importlib.import_module("verifiers.v1.utils.loaders")
        config = loaders.taskset_config_type(package).model_validate({**arguments, "id": package})
        self.taskset = loaders.load_taskset(config)
        self.kind = type(self.taskset).task_type()
        sandboxed = [
            fn.__name__ for fn in self._task(next(iter(self.taskset)).data).hooks("reward") if needs_runtime(fn)
        ]
        if sandboxed:
            raise SystemExit(
                f"{package}: its reward {sandboxed[0]} needs a sandbox of verifiers, which is not supported"
            )

    def _task(self, data: Any) -> Any:
        return self.kind(data, getattr(self.taskset.config, "task", None))

    def tasks(self, limit: int) -> list[Json]:
        """The first tasks of the taskset."""
        return [self._row(task) for task in itertools.islice(iter(self.taskset), limit)]

    def _row(self, task: Any) -> Json:
        data = task.data
        row = data.model_dump(mode="json", exclude_defaults=True)
        return {
            "id": data.id or data.name or f"{data.idx}",
            "responses_create_params": {"input": [as_item(each) for each in self._prompt(data)]},
            ROW: row,
        }

    def _prompt(self, data: Any) -> list[Json]:
        system = [] if data.system_prompt is None else [{"role": "system", "content": data.system_prompt}]
        if isinstance(data.prompt, str):
            return [*system, {"role": "user", "content": data.prompt}]
        return [*system, *(message.model_dump(mode="json") for message in data.prompt or ())]

    async def tools(self) -> list[Json]:
        """The tools of a task's toolsets and of the shared toolsets."""
        session = await self.open(self._row(next(iter(self.taskset))))
        offered = session["tools"].items()
        return [function_tool(name, tool.description, tool.input_schema) for name, (_, tool) in offered]

    async def open(self, task: Json) -> Json:
        """The task, its state, and its tools."""
        from mcp.server.mcpserver import MCPServer

        data = self.kind.data_type().model_validate(row_of(task))
        vf_task = self._task(data)
        tools: Json = {}
        state_class = importlib.import_module("verifiers.v1.state").state_cls
        state = state_class(self.kind)()
        for toolset in [*vf_task.toolsets(vf_task.config), *type(self.taskset).toolsets(self.taskset.config)]:
            if toolset.config.url:
                raise AdapterFault("ToolError", f"{type(toolset).__name__} is a server elsewhere, which is not adapted")

            async def pull() -> Any:
                return state

            async def push(before: bytes) -> None:
                """Nothing to do: the state is shared."""

            toolset._pull_state, toolset._push_state = pull, push
            await toolset.setup()
            await toolset.setup_task(data)
            server = MCPServer(toolset.server_name or "tools")
            toolset.register(server)
            prefix = f"{toolset.server_name}_" if toolset.server_name else ""
            tools |= {prefix + tool.name: (server, tool) for tool in await server.list_tools()}
        return {"task": vf_task, "state": state, "tools": tools}

    async def call(self, session: Json, name: str, arguments: Any) -> str:
        """Call a tool of a toolset. A refusal is a text for the model."""
        if name not in session["tools"]:
            return f'error: there is no tool "{name}"; there are: {", ".join(session["tools"])}'
        server, tool = session["tools"][name]
        refusal = importlib.import_module("mcp.server.mcpserver.exceptions").ToolError
        try:
            result = await server.call_tool(tool.name, arguments)
        except refusal as error:
            return f"error: {error}"
        content = getattr(result, "content", result)
        text = "\n".join(str(getattr(block, "text", f"[{block.type}]")) for block in content)
        return f"error: {text}" if getattr(result, "is_error", False) else text

    async def verify(self, session: Json, task: Json, response: Json) -> Json:
        """The task's rewards and metrics over a trace of the conversation."""
        vf_task, vf = session["task"], self.vf
        trace_task = vf.TraceTask(type=type(vf_task).__name__, data=vf_task.data, key=vf_task.key, hash=vf_task.hash)
        trace = vf.Trace(task=trace_task, agent=vf.AgentInfo(config=vf.AgentConfig()), state=session["state"])
        messages = [
            *((each, False) for each in self._prompt(vf_task.data)),
            *((each, each["role"] == "assistant") for each in chat_messages(response.get("output") or [])),
        ]
        for at, (message, sampled) in enumerate(messages):
            node = {"parent": at - 1 if at else None, "message": message, "sampled": sampled}
            trace.nodes.append(vf.MessageNode.model_validate(node))
        trace.is_completed = trace.ok = True
        await vf_task.score(trace)
        metrics = {name: value for name, value in trace.metrics.items() if value is not None}
        rewards = {name: each.score for name, each in trace.rewards.items() if each is not None}
        if not rewards:
            raise AdapterFault("VerifyError", f"{type(vf_task).__name__} gave no reward")
        return {**metrics, **rewards, "reward": trace.reward}


def needs_runtime(function: Any) -> bool:
    """Whether a reward cannot be computed without a sandbox."""
    parameter = inspect.signature(function).parameters.get("runtime")
    return parameter is not None and parameter.default is inspect.Parameter.empty


class EnvironmentAdapter(Adapter):
    """`SingleTurnEnv`, `ToolEnv` and `MultiTurnEnv` of the releases before 0.4."""

    def __init__(self, package: str, arguments: Json) -> None:
        self.vf = importlib.import_module("verifiers")
        self.types = importlib.import_module("verifiers.types")
        self.environment = self.vf.load_environment(module_name(package), **arguments)
        single, tools = (
            isinstance(self.environment, self.vf.SingleTurnEnv),
            isinstance(self.environment, self.vf.ToolEnv),
        )
        self.turns = not single and not tools

    def tasks(self, limit: int) -> list[Json]:
        """The first rows of the data set for training, else of the one for evaluation."""
        try:
            rows = self.environment.get_dataset(n=limit)
        except (ValueError, AssertionError):
            rows = self.environment.get_eval_dataset(n=limit)
        return [self._row(at, dict(row)) for at, row in enumerate(rows)]

    def _row(self, at: int, row: Json) -> Json:
        prompt = row["prompt"] if isinstance(row["prompt"], list) else [{"role": "user", "content": row["prompt"]}]
        # An environment that takes turns begins the conversation itself.
        params = {"input": [] if self.turns else [as_item(dict(message)) for message in prompt]}
        return {"id": str(row.get("example_id", at)), "responses_create_params": params, ROW: row}

    async def tools(self) -> list[Json]:
        """The tools of a `ToolEnv`."""
        tools = getattr(self.environment, "tool_defs", None) or ()
        return [function_tool(tool.name, tool.description, tool.parameters) for tool in tools]

    async def open(self, task: Json) -> Any:
        """The state of a rollout, as the environment sets it up."""
        client = self.types.ClientConfig(api_key_var="NO_KEY", api_base_url="http://127.0.0.1:9/v1")
        state = await self.environment.init_state(row_of(task), client, "policy", None)
        return await self.environment.setup_state(state) or state

    async def call(self, session: Any, name: str, arguments: Any) -> str:
        """Call a tool through the environment, with its error messages."""
        if name not in self.environment.tool_map:
            return f'error: there is no tool "{name}"; there are: {", ".join(self.environment.tool_map)}'
        call = self.types.ToolCall(id="call", name=name, arguments=json.dumps(arguments))
        message = self.types.AssistantMessage(role="assistant", content="", tool_calls=[call])
        results = await self.environment.env_response([*session["prompt"], message], session)
        return "\n".join(text_of(each.content) for each in results)

    async def reset(self, session: Any, task: Json) -> Json:
        """The prompt of the row."""
        return {"observation": [as_item(message.model_dump()) for message in session["prompt"]], "info": {}}

    async def step(self, session: Any, action: str) -> Json:
        """The environment's reply to an answer, until one of its stop conditions holds."""
        self._add_step(session, [self.types.AssistantMessage(role="assistant", content=action)])
        over = await self.environment.is_completed(session)
        messages: list[Json] = []
        if not over:
            before = len(self._history(session))
            prompt = await self.environment.get_prompt_messages(session)
            session["adapter_prompt"] = self._normal(prompt)
            messages = [as_item(message.model_dump()) for message in session["adapter_prompt"][before:]]
            over = await self.environment.is_completed(session)
        truncated = over and session.get("stop_condition") in ("max_turns_reached", "timeout_reached")
        return {
            "observation": [] if over else messages,
            "reward": 0.0,
            "terminated": over and not truncated,
            "truncated": truncated,
            "info": {"stop_condition": session.get("stop_condition")} if over else {},
        }

    def _normal(self, messages: Any) -> Any:
        normal = importlib.import_module("verifiers.utils.message_utils").maybe_normalize_messages
        return normal(messages, field_name="adapter")

    def _history(self, session: Any) -> list[Any]:
        if not session["trajectory"]:
            return list(session["prompt"])
        return [*session["trajectory"][-1]["prompt"], *session["trajectory"][-1]["completion"]]

    def _add_step(self, session: Any, completion: list[Any]) -> None:
        """Add one step of the trajectory: the prompt and the completion."""
        session["trajectory"].append(
            {
                "prompt": session.get("adapter_prompt") or list(session["prompt"]),
                "completion": completion,
                "response": None,
                "tokens": None,
                "reward": None,
                "advantage": None,
                "is_truncated": False,
                "trajectory_id": session["trajectory_id"],
                "extras": {},
            }
        )

    async def verify(self, session: Any, task: Json, response: Json) -> Json:
        """The rubric over the completion, which is everything after the prompt."""
        if self.turns:
            await self.environment.render_completion(session)
        else:
            completion = self._normal(chat_messages(response.get("output") or []))
            for at, message in enumerate(completion):
                if message.role == "assistant":
                    session["adapter_prompt"] = [*session["prompt"], *completion[:at]]
                    self._add_step(session, [message])
            session["completion"] = completion
        session["timing"].generation.end = time.time()
        session["is_completed"] = True
        await self.environment.rubric.score_rollout(session)
        return {**(session["metrics"] or {}), "reward": session["reward"]}

    async def close(self, session: Any) -> None:
        """Free what the environment holds for a rollout."""
        await self.environment.cleanup(session)


def main() -> None:
    """Find out which kind of package it is, and serve it."""
    stdio = take_stdio()
    package, arguments = sys.argv[1], json.loads(sys.argv[2])
    try:
        importlib.import_module("verifiers")
        module = importlib.import_module(module_name(package))
    except ImportError as error:
        sys.exit(f"{package}: {error}")
    if hasattr(module, "load_environment"):
        serve(EnvironmentAdapter(package, arguments), stdio)
    serve(TasksetAdapter(module_name(package), arguments), stdio)


if __name__ == "__main__":
    main()
