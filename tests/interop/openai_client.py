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
ASKED = {"model": "m", "messages": [{"role": "user", "content": "15% of 240, and 2 + 2?"}]}
INPUT = {"model": "m", "input": ASKED["messages"]}
COUNTED = {"stream_options": {"include_usage": True}}
PARAMETERS = {
    "type": "object",
    "properties": {"expression": {"type": "string"}},
    "required": ["expression"],
    "additionalProperties": False,
}
FUNCTION = {"name": "calculator", "parameters": PARAMETERS, "strict": True}
TOOL, CHAT_TOOL = {"type": "function", **FUNCTION}, {"type": "function", "function": FUNCTION}


class Sum(BaseModel):
    a: int
    b: str


def client(url, **more):
    return openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, **more)


def strict(url):
    return client(url, _strict_response_validation=True)


def items(response):
    """What a Response says, item by item."""
    said = {
        "message": lambda item: ["".join(part.text for part in item.content)],
        "reasoning": lambda item: ["".join(part.text for part in item.content)],
        "function_call": lambda item: [item.name, json.loads(item.arguments)],
        "function_call_output": lambda item: [item.to_dict()["output"]],
    }
    return [[item.type, *said[item.type](item)] for item in response.output]


def message(choice):
    """What a chat message says."""
    calls = [[call.function.name, json.loads(call.function.arguments)] for call in choice.message.tool_calls or ()]
    return [choice.message.content, calls, choice.finish_reason]


def error(call):
    """The class, the status and the code of what a call raises."""
    try:
        call()
    except openai.APIStatusError as raised:
        return [type(raised).__name__, raised.status_code, raised.code]
    return None


def of_models(url):
    asker = strict(url)
    (listed,) = asker.models.list()
    one = asker.models.retrieve(listed.id)
    answer = asker.responses.create(model=listed.id, input="Go.")
    chat = asker.chat.completions.create(**ASKED | {"model": listed.id})
    return [one == listed, listed.created > 0, answer.model, chat.model]


def streamed(asker, **more):
    with asker.responses.stream(**INPUT, **more) as stream:
        kinds = [event.type for event in stream]
        return stream.get_final_response(), [kinds[0], kinds[-1]]


def chat_streamed(asker, **more):
    with asker.chat.completions.stream(**ASKED, **more) as stream:
        return stream.get_final_completion()


def of_responses(url):
    asker = strict(url)
    whole = asker.responses.create(**INPUT, tools=[TOOL])
    raw = asker.responses.with_raw_response.create(**INPUT)
    final, kinds = streamed(asker, tools=[TOOL])
    plain = list(asker.responses.create(**INPUT, stream=True))
    return {
        "whole": items(whole),
        "raw": [raw.status_code, items(raw.parse())],
        "streamed": items(final),
        "kinds": kinds,
        "numbers": [event.sequence_number for event in plain] == list(range(len(plain))),
        "usage": [whole.usage.total_tokens, final.usage.total_tokens, plain[-1].response.usage.total_tokens],
    }


def of_chat(url, **more):
    """Whole and streamed; the usage is the same."""
    asker = strict(url)
    whole = asker.chat.completions.create(**ASKED, **more)
    final = chat_streamed(asker, **COUNTED, **more)
    assert whole.usage == final.usage
    return [message(each.choices[0]) for each in (whole, final)]


def of_parsed(url):
    asker = client(url)
    responses = [asker.responses.parse(**INPUT, text_format=Sum), streamed(asker, text_format=Sum)[0]]
    chats = [asker.chat.completions.parse(**ASKED, response_format=Sum), chat_streamed(asker, response_format=Sum)]
    parsed = [each.output_parsed for each in responses] + [each.choices[0].message.parsed for each in chats]
    return [each.model_dump() for each in parsed]


def of_tokens(url):
    asker = client(url)
    whole = asker.chat.completions.create(**ASKED, logprobs=True, top_logprobs=1)
    chunks = list(asker.chat.completions.create(**ASKED, logprobs=True, stream=True))
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
        whole = await asker.responses.create(**INPUT)
        async with asker.responses.stream(**INPUT) as stream:
            final = await stream.get_final_response()
        chat = await asker.chat.completions.create(**ASKED)
    return [items(whole), items(final), message(chat.choices[0])]


def of_errors(url):
    asker = client(url)
    return [
        error(lambda: asker.models.retrieve("a/b c")),
        error(lambda: asker.responses.retrieve("resp_1"))[:2],
        error(lambda: asker.chat.completions.create(**ASKED, n=129))[:2],
    ]


print(
    json.dumps(
        {
            "models": [of_models(url) for url in (TALKER, AGENT)],
            "responses": of_responses(TALKER),
            "agent": of_responses(AGENT),
            "chat": of_chat(TALKER, tools=[CHAT_TOOL]),
            "agent_chat": of_chat(AGENT),
            "parsed": of_parsed(JSON_MODEL),
            "tokens": of_tokens(TOKENS),
            "async": [asyncio.run(of_async(url)) for url in (TALKER, AGENT)],
            "errors": [of_errors(url) for url in (TALKER, AGENT)],
        }
    )
)
