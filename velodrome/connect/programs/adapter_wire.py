"""An environment of another project as a program that answers requests: the standard library alone.

This file and those beside it run in the other project's virtual environment, so nothing here imports velodrome. A
program calls `take_stdio`, makes an `Adapter` and calls `serve`: each line of stdin is a request as JSON, each line of
stdout an answer, in any order. It ends when its stdin does.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import secrets
import threading
import traceback
from typing import Any, TextIO

Json = dict[str, Any]


class AdapterFault(Exception):
    """A failure of one part: `kind` is ToolError, VerifyError or TaskError."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Adapter:
    """What a program implements. A session is the object that `open` returns."""

    turns = False

    async def tools(self) -> list[Json]:
        """The tools on offer, as OpenAI function tools."""
        return []

    def tasks(self, limit: int) -> list[Json]:
        """The first tasks of the environment's data set."""
        return []

    async def open(self, task: Json) -> Any:
        """A session for a task."""

    async def call(self, session: Any, name: str, arguments: Any) -> str:
        """A tool's result."""
        return f'error: there is no tool "{name}"'

    async def reset(self, session: Any, task: Json) -> Json:
        """The first observation."""
        return {"observation": None, "info": {}}

    async def step(self, session: Any, action: str) -> Json:
        """The turn after an action of the model."""
        raise NotImplementedError

    async def verify(self, session: Any, task: Json, response: Json) -> Json:
        """The score."""
        raise NotImplementedError

    async def close(self, session: Any) -> None:
        """Forget the session."""


class Service:
    """The sessions of one adapter. Each request is `[number, operation, fields]`, and each answer has its number."""

    def __init__(self, adapter: Adapter, out: TextIO) -> None:
        self.adapter = adapter
        self._out = out
        self._sessions: dict[str, Any] = {}

    async def answer(self, number: int, operation: str, fields: Json) -> None:
        """Run the operation, and write one line: the result, or the error with its kind."""
        try:
            result = clean(await self._result(operation, fields))
            line = json.dumps({"number": number, "result": result}, default=str)
        except AdapterFault as fault:
            line = json.dumps({"number": number, "kind": fault.kind, "error": str(fault)})
        except Exception as error:  # noqa: BLE001 - the edge of the process
            traceback.print_exc()
            kind = "VerifyError" if operation == "verify" else "ToolError"
            text = f"{operation}: {type(error).__name__}: {error}"
            line = json.dumps({"number": number, "kind": kind, "error": text})
        self._out.write(line + "\n")
        self._out.flush()

    async def _result(self, operation: str, fields: Json) -> Any:
        if operation == "tools":
            return await self.adapter.tools()
        if operation == "tasks":
            return self.adapter.tasks(fields["limit"])
        if operation == "open":
            session = await self.adapter.open(fields["task"])
            name = secrets.token_hex(16)
            self._sessions[name] = session
            return name
        name = fields.pop("session")
        if operation == "close":
            return await self.adapter.close(self._sessions.pop(name)) if name in self._sessions else None
        if name not in self._sessions:
            raise AdapterFault("VerifyError" if operation == "verify" else "ToolError", "the session is gone")
        if operation == "reset" and not self.adapter.turns:
            return None
        result = await getattr(self.adapter, operation)(self._sessions[name], **fields)
        return str(result).encode("utf-8", "replace").decode() if operation == "call" else result


def take_stdio() -> tuple[int, int]:
    """Reserve stdin for requests and stdout for answers, before the project is imported.

    The project and its child processes read nothing from stdin, and their output goes to stderr.
    """
    requests, answers = os.dup(0), os.dup(1)  # not inherited
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def serve(adapter: Adapter, stdio: tuple[int, int]) -> None:
    """Answer until stdin ends; `stdio` is what `take_stdio` returned."""
    requests, out = os.fdopen(stdio[0]), os.fdopen(stdio[1], "w")
    service, loop = Service(adapter, out), asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    out.write("{}\n")  # ready
    out.flush()
    for request in requests:
        asyncio.run_coroutine_threadsafe(service.answer(*json.loads(request)), loop)
    os._exit(0)


def clean(value: Any) -> Any:
    """The value with NaN and infinity as None, because JSON has neither."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(name): clean(each) for name, each in value.items()}
    return [clean(each) for each in value] if isinstance(value, list | tuple) else value


def function_tool(name: str, description: str | None, parameters: Any) -> Json:
    """A tool as OpenAI's function tools are."""
    about = {"description": description or "", "parameters": parameters, "strict": False}
    return {"type": "function", "name": name, **about}


def text_of(content: Any) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def chat_messages(items: list[Json]) -> list[Json]:
    """Items of a Response as chat messages; the calls of one turn are one message."""
    messages: list[Json] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            call = {"id": item.get("call_id", ""), "name": item.get("name", ""), "arguments": item.get("arguments", "")}
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            messages[-1].setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            output = text_of(item.get("output"))
            messages.append({"role": "tool", "tool_call_id": item.get("call_id", ""), "content": output})
        elif kind == "message":
            messages.append({"role": item.get("role", "assistant"), "content": text_of(item.get("content"))})
    return messages
