"""What LangChain's ChatOpenAI gets from our servers, by chat completions and by Responses, printed as one JSON object.

Arguments: the URLs of a model that calls tools, of a model that answers JSON, and of an agent.
"""

import json
import sys

from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import BadRequestError
from pydantic import BaseModel

TALKER, JSON_MODEL, AGENT = sys.argv[1:4]
QUESTION = "15% of 240, and 2 + 2?"


class Sum(BaseModel):
    """A sum."""

    a: int
    b: str


@tool
def calculator(expression: str) -> str:
    """Work out an expression."""
    return {"240 * 0.15": "36.0", "2 + 2": "4"}[expression]


@tool
def another(expression: str) -> str:
    """A tool that the agent's environment does not have."""
    return expression


def chat(url, responses):
    return ChatOpenAI(base_url=url + "/v1", api_key="none", model="hosted", use_responses_api=responses, max_retries=0)


def of_model(responses):
    model = chat(TALKER, responses).bind_tools([calculator])
    first = model.invoke(QUESTION)
    results = [ToolMessage(calculator.invoke(call["args"]), tool_call_id=call["id"]) for call in first.tool_calls]
    last = model.invoke([("user", QUESTION), first, *results])
    whole = None
    for piece in model.stream(QUESTION):
        whole = piece if whole is None else whole + piece
    return {
        "text": first.text,
        "calls": [[call["name"], call["args"]] for call in first.tool_calls],
        "last": last.text,
        "streamed": [whole.text, [[call["name"], call["args"]] for call in whole.tool_calls]],
        "usage": first.usage_metadata["total_tokens"],
        "batch": [each.text for each in chat(JSON_MODEL, responses).batch(["a", "b"])],
        "structured": [
            chat(JSON_MODEL, responses).with_structured_output(Sum, method=method).invoke("?").model_dump()
            for method in ("json_schema", "json_mode")
        ],
    }


def of_agent(responses):
    model = chat(AGENT, responses)
    pieces = [piece.text for piece in model.stream(QUESTION)]
    whole = model.invoke(QUESTION)
    own = model.bind_tools([calculator]).invoke(QUESTION)
    try:
        refused = model.bind_tools([another]).invoke(QUESTION).text
    except BadRequestError as error:
        refused = error.body["param"]
    return [whole.text, "".join(pieces), sum(map(bool, pieces)), len(whole.tool_calls), own.text, refused]


print(json.dumps({name: [of_model(how), of_agent(how)] for name, how in (("chat", False), ("responses", True))}))
