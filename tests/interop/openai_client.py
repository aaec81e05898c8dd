"""What an openai client of either major version gets from our servers, printed as one JSON object.

Arguments: the URLs of a model that calls tools, of one that answers JSON, of one that answers with token ids and
log-probabilities, and of an agent.
"""

import asyncio
import json
import sys

import openai
from pydantic import BaseModel

TALKER, JSON_MODEL, TOKENS, AGENT = sys.argv[1:5]
MESSAGES = [{"role": "user", "content": "15% of 240, and 2 + 2?"}]
PARAMETERS = {
    "type": "object",
    "properties": {"expression": {"type": "string"}},
    "required": ["expression"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "calculator", "parameters": PARAMETERS, "strict": True}
CHAT_TOOL = {"type": "function", "function": {"name": "calculator", "parameters": PARAMETERS, "strict": True}}


class Sum(BaseModel):
    a: int
    b: str


def client(url, **more):
    return openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, **more)


def items(response):
    """What a Response says, item by item."""
    said = []
    for item in response.output:
        if item.type == "message":
            said.append(["message", "".join(part.text for part in item.content)])
        elif item.type == "reasoning":
            said.append(["reasoning", "".join(part.text for part in item.content)])
        elif item.type == "function_call":
            said.append(["function_call", item.name, json.loads(item.arguments)])
        else:
            said.append([item.type, item.to_dict()["output"]])
    return said


def message(choice):
    """What a chat message says."""
    calls = [[call.function.name, json.loads(call.function.arguments)] for call in choice.message.tool_calls or ()]
    return [choice.message.content, calls, choice.finish_reason]


def deltas(chunks):
    """The choices that chunks add up to, and the usage."""
    texts, calls, ends, usage, ids = {}, {}, {}, None, set()
    for chunk in chunks:
        ids.add(chunk.id)
        if chunk.usage is not None:
            usage = chunk.usage.to_dict()
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            for piece in choice.delta.tool_calls or ():
                known = calls.setdefault(choice.index, {}).setdefault(piece.index, ["", ""])
                known[0] += piece.function.name or ""
                known[1] += piece.function.arguments or ""
            ends[choice.index] = choice.finish_reason or ends.get(choice.index)
    made = [
        [texts[at], [[name, json.loads(text)] for name, text in calls.get(at, {}).values()], ends[at]] for at in ends
    ]
    return made, usage, len(ids)


def error(call):
    """The class, the status and the message of what a call raises."""
    try:
        call()
    except openai.APIStatusError as raised:
        return [type(raised).__name__, raised.status_code, (raised.body or {}).get("message"), raised.code]
    return None


def of_models(url):
    asker = client(url, _strict_response_validation=True)
    (listed,) = asker.models.list()
    one = asker.models.retrieve(listed.id)
    answer = asker.responses.create(model=listed.id, input="Go.")
    chat = asker.chat.completions.create(model=listed.id, messages=MESSAGES)
    return [one == listed, listed.created > 0, answer.model, chat.model, error(lambda: asker.models.retrieve("a/b c"))]


def streamed(asker, **more):
    with asker.responses.stream(model="m", **{"input": MESSAGES, **more}) as stream:
        kinds = [event.type for event in stream]
        return stream.get_final_response(), kinds


def of_responses(url):
    asker = client(url, _strict_response_validation=True)
    whole = asker.responses.create(model="m", input=MESSAGES, tools=[TOOL])
    raw = asker.responses.with_raw_response.create(model="m", input=MESSAGES)
    final, kinds = streamed(asker, tools=[TOOL])
    plain = list(asker.responses.create(model="m", input=MESSAGES, stream=True))
    return {
        "whole": items(whole),
        "raw": [raw.status_code, items(raw.parse())],
        "streamed": items(final),
        "kinds": [kinds[0], kinds[-1]],
        "numbers": [event.sequence_number for event in plain] == list(range(len(plain))),
        "usage": [whole.usage.total_tokens, final.usage.total_tokens, plain[-1].response.usage.total_tokens],
    }


def of_chat(url, **more):
    asker = client(url, _strict_response_validation=True)
    whole = asker.chat.completions.create(model="m", messages=MESSAGES, **more)
    with asker.chat.completions.stream(model="m", messages=MESSAGES, **more) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    counted = {"stream": True, "stream_options": {"include_usage": True}}
    made, usage, ids = deltas(asker.chat.completions.create(model="m", messages=MESSAGES, **counted, **more))
    return {
        "whole": message(whole.choices[0]),
        "helper": message(final.choices[0]),
        "chunks": made[0],
        "ids": ids,
        "usage": whole.usage.to_dict() == usage,
    }


def of_choices(url):
    asker = client(url, _strict_response_validation=True)
    one = asker.chat.completions.create(model="m", messages=MESSAGES)
    whole = asker.chat.completions.create(model="m", messages=MESSAGES, n=3)
    counted = {"stream": True, "stream_options": {"include_usage": True}}
    made, usage, ids = deltas(asker.chat.completions.create(model="m", messages=MESSAGES, n=3, **counted))
    return {
        "indexes": [choice.index for choice in whole.choices],
        "whole": [message(choice) for choice in whole.choices] == [message(one.choices[0])] * 3,
        "chunks": made == [message(one.choices[0])] * 3,
        "ids": ids,
        "usage": [whole.usage.total_tokens, usage["total_tokens"]] == [3 * one.usage.total_tokens] * 2,
        "errors": [
            error(lambda n=n: asker.chat.completions.create(model="m", messages=MESSAGES, n=n)) for n in (0, 129)
        ],
    }


def of_parsed(url):
    asker = client(url)
    response = asker.responses.parse(model="m", input=MESSAGES, text_format=Sum)
    final, _ = streamed(asker, text_format=Sum)
    chat = asker.chat.completions.parse(model="m", messages=MESSAGES, response_format=Sum)
    with asker.chat.completions.stream(model="m", messages=MESSAGES, response_format=Sum) as stream:
        chat_final = stream.get_final_completion()
    found = [
        response.output_parsed,
        final.output_parsed,
        *(each.choices[0].message.parsed for each in (chat, chat_final)),
    ]
    return [each.model_dump() for each in found]


def of_tokens(url):
    asker = client(url)
    whole = asker.chat.completions.create(model="m", messages=MESSAGES, logprobs=True, top_logprobs=1)
    chunks = list(asker.chat.completions.create(model="m", messages=MESSAGES, logprobs=True, stream=True))
    prompts = [chunk.model_extra["prompt_token_ids"] for chunk in chunks if "prompt_token_ids" in chunk.model_extra]
    choices = [choice for chunk in chunks for choice in chunk.choices]
    pieces = [token for choice in choices for token in choice.model_extra.get("token_ids") or ()]
    return {
        "prompt": [whole.model_extra["prompt_token_ids"], *prompts],
        "ids": [whole.choices[0].model_extra["token_ids"], pieces],
        "logprobs": [each.logprob for each in whole.choices[0].logprobs.content],
    }


async def of_async(url):
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as asker:
        whole = await asker.responses.create(model="m", input=MESSAGES)
        async with asker.responses.stream(model="m", input=MESSAGES) as stream:
            async for _ in stream:
                pass
            final = await stream.get_final_response()
        chat = await asker.chat.completions.create(model="m", messages=MESSAGES)
    return [items(whole), items(final), message(chat.choices[0])]


def of_requests(url):
    """Fields that clients send are taken, and what is refused says why."""
    asker = client(url)
    chat, responses = asker.chat.completions.create, asker.responses.create
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    fields = [
        {"max_tokens": 5},
        {"max_completion_tokens": 5},
        {"seed": 7, "stop": ["x"], "temperature": 0.5, "top_p": 0.9, "presence_penalty": 0.1, "user": "u"},
        {"store": True, "metadata": {"a": "b"}},
        {"tools": [CHAT_TOOL], "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": [CHAT_TOOL], "tool_choice": {"type": "function", "function": {"name": "calculator"}}},
        {"response_format": {"type": "json_object"}},
        {"messages": [{"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, *MESSAGES]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, image]}]},
    ]
    taken = [bool(chat(**{"model": "m", "messages": MESSAGES, **each}).choices) for each in fields]
    taken += [
        bool(responses(model="m", input="?", instructions="i", max_output_tokens=5, store=False, metadata={}).output),
        bool(
            responses(model="m", input=MESSAGES, tools=[TOOL], tool_choice="none", reasoning={"effort": "low"}).output
        ),
    ]
    return {
        "taken": taken,
        "retrieve": error(lambda: asker.responses.retrieve("resp_1")),
        "embeddings": error(lambda: asker.embeddings.create(model="m", input="x")),
        "input": error(lambda: responses(model="m", input=7)),
        "messages": error(lambda: chat(model="m", messages=[])),
        "tool_calls": error(lambda: chat(model="m", messages=[{"role": "assistant", "tool_calls": [{}]}])),
    }


print(
    json.dumps(
        {
            "version": openai.__version__,
            "models": [of_models(url) for url in (TALKER, AGENT)],
            "responses": of_responses(TALKER),
            "agent": of_responses(AGENT),
            "chat": of_chat(TALKER, tools=[CHAT_TOOL]),
            "agent_chat": of_chat(AGENT),
            "choices": [of_choices(url) for url in (TALKER, AGENT)],
            "parsed": of_parsed(JSON_MODEL),
            "tokens": of_tokens(TOKENS),
            "async": [asyncio.run(of_async(url)) for url in (TALKER, AGENT)],
            "requests": [of_requests(url) for url in (TALKER, AGENT)],
        }
    )
)
