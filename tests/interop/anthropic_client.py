"""The `anthropic` client used as its users do: `anthropic_client.py URL NAME …` prints what each of the checks got."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import anthropic

URL = sys.argv[1]
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
TOOL = {
    "name": "calculator",
    "description": "Works out a sum.",
    "input_schema": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
}
BLOCKS = [
    {"type": "text", "text": "images", "cache_control": {"type": "ephemeral"}},
    {"type": "image", "source": PNG},
    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}},
]


def client(key: str = "right", retries: int = 0, **more: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=URL, api_key=key, max_retries=retries, **more)


def asking(text: Any, **more: Any) -> dict[str, Any]:
    return {"model": "hosted", "max_tokens": 50, "messages": [{"role": "user", "content": text}], **more}


def whole(message: Any) -> dict[str, Any]:
    """A message without what is new in every call; the client's strict form must hold."""
    type(message).model_validate(message.to_dict())
    result = message.to_dict()
    assert result.pop("id").startswith("msg_")
    return result


def both(request: dict[str, Any]) -> list[Any]:
    """The same answer whole, streamed and accumulated by the client, and as raw events."""
    with client() as asker:
        created = asker.messages.create(**request)
        with asker.messages.stream(**request) as stream:
            pieces = "".join(stream.text_stream)
            final = stream.get_final_message()
        raw = [event.type for event in asker.messages.create(**request, stream=True)]
    assert pieces == "".join(block.text for block in created.content if block.type == "text")
    assert (raw[0], raw[-2:]) == ("message_start", ["message_delta", "message_stop"])
    return [whole(created), whole(final)]


def answers() -> Any:
    """Each answer of the model, whole and streamed."""
    sampling = {"stop_sequences": ["END"], "extra_body": {"temperature": 0.5, "top_k": 3}}
    one_call = {"type": "any", "disable_parallel_tool_use": True}
    requests = [
        asking("text", system="Be brief.", **sampling),
        asking("thinking", thinking={"type": "enabled", "budget_tokens": 1024}),
        asking("calls", tools=[TOOL], tool_choice=one_call),
        asking("refusal"),
        asking("cut"),
        asking(BLOCKS),
    ]
    return list(map(both, requests))


def by_hand() -> Any:
    """Two turns: the calls of the first, answered by blocks with an image and by an error, and the final text."""
    request = asking("calls", tools=[TOOL])
    with client() as asker:
        first = asker.messages.create(**request)
        ids = [block.id for block in first.content if block.type == "tool_use"]
        seen = [{"type": "text", "text": "4"}, {"type": "image", "source": PNG}]
        results = [
            {"type": "tool_result", "tool_use_id": ids[0], "content": seen},
            {"type": "tool_result", "tool_use_id": ids[1], "content": "no", "is_error": True},
        ]
        said = [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
        second = asker.messages.create(**request | {"messages": [*request["messages"], *said]})
    return [first.stop_reason, whole(second)]


def runner() -> Any:
    """The client's own loop over tools, whole and streamed."""
    ran = []

    @anthropic.beta_tool
    def calculator(expression: str) -> str:
        """Works out a sum.

        Args:
            expression: The sum.
        """
        ran.append(expression)
        if expression == "2 + 2":
            raise ValueError("out of order")
        return "36"

    with client() as asker:
        last = asker.beta.messages.tool_runner(**asking("calls"), tools=[calculator]).until_done()
        streamed = [
            [event.type for event in stream][-1]
            for stream in asker.beta.messages.tool_runner(**asking("calls"), tools=[calculator], stream=True)
        ]
    return [last.content[0].text, last.stop_reason, streamed, ran]


def parsed() -> Any:
    """A structured answer, read by the client."""
    from pydantic import BaseModel

    class Sum(BaseModel):
        total: int

    with client() as asker:
        return asker.messages.parse(**asking("parsed"), output_format=Sum).parsed_output.total


def asynchronous() -> Any:
    async def run() -> Any:
        async with anthropic.AsyncAnthropic(base_url=URL, api_key="right", max_retries=0) as asker:
            created = await asker.messages.create(**asking("calls"))
            async with asker.messages.stream(**asking("calls")) as stream:
                return [whole(created), whole(await stream.get_final_message())]

    return asyncio.run(run())


def agent() -> Any:
    return both(asking("What is 15% of 240?"))


def models() -> Any:
    with client() as asker:
        (listed,) = asker.models.list()
        found = asker.models.retrieve(listed.id)
    for model in (listed, found):
        type(model).model_validate(model.to_dict())
    return [listed.id, listed.display_name, found.id, found.lifecycle, found.type]


def error(call: Any) -> list[Any]:
    try:
        call()
    except anthropic.APIStatusError as caught:
        return [type(caught).__name__, caught.status_code, caught.type]
    raise AssertionError("no error")


def errors() -> Any:
    with client() as asker, client("wrong") as stranger:
        create = asker.messages.create
        prefill = {"messages": [{"role": "assistant", "content": "A"}]}
        searching = [{"type": "web_search_20250305", "name": "web_search"}]
        return {
            "wrong key": error(lambda: stranger.messages.create(**asking("text"))),
            "server tool": error(lambda: create(**asking("text", tools=searching))),
            "prefill": error(lambda: create(**asking("text") | prefill)),
            "failing": error(lambda: create(**asking("failing"))),
            "failing stream": error(lambda: list(create(**asking("failing"), stream=True))),
            "counting": error(lambda: asker.messages.count_tokens(model="m", messages=asking("text")["messages"])),
        }


def taken() -> Any:
    """Answers to a key in the older header, and to a request that is tried again."""
    with client(retries=2) as patient:
        old = client("wrong", default_headers={"x-api-key": "right", "Authorization": anthropic.omit})
        requests = (old, "text"), (patient, "failing once")
        return [whole(asker.messages.create(**asking(text)))["content"] for asker, text in requests]


if __name__ == "__main__":
    print(json.dumps({name: globals()[name]() for name in sys.argv[2:]}))
