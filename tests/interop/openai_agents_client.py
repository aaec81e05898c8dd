"""What openai-agents does with our servers, by chat completions and by Responses, printed as one JSON object.

Arguments: the URLs of a model that calls tools, and of an agent.
"""

import asyncio
import json
import sys

from agents import (
    Agent,
    ModelBehaviorError,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

TALKER, AGENT = sys.argv[1:3]
QUESTION = "15% of 240, and 2 + 2?"
set_tracing_disabled(True)
called = []


@function_tool
def calculator(expression: str) -> str:
    """Work out an expression."""
    called.append(expression)
    return {"240 * 0.15": "36.0", "2 + 2": "4"}[expression]


async def used(kind, url, tools):
    called.clear()
    client = AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    model = kind(model="hosted", openai_client=client)
    settings = ModelSettings(include_usage=True)
    agent = Agent(name="asker", instructions="Be brief.", model=model, model_settings=settings, tools=tools)
    whole = await Runner.run(agent, QUESTION)
    stream = Runner.run_streamed(agent, QUESTION)
    texts = []
    async for event in stream.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            texts.append(event.data.delta)
    await client.close()
    used = whole.context_wrapper.usage
    return {
        "output": [whole.final_output, stream.final_output],
        "items": [item.type for item in whole.new_items],
        "deltas": "".join(texts),
        "called": list(called),
        "usage": [used.requests, used.total_tokens == stream.context_wrapper.usage.total_tokens],
    }


async def tried(kind, url, tools):
    try:
        return await used(kind, url, tools)
    except ModelBehaviorError as error:
        return f"{type(error).__name__}: {error}"


async def main():
    ways = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}
    return {
        name: [await tried(kind, TALKER, [calculator]), await tried(kind, AGENT, [])] for name, kind in ways.items()
    }


print(json.dumps(asyncio.run(main())))
