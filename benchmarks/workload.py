"""The one-tool rollout that everything here is measured on: the task, the model's two answers, the two requests.

A task is about 0.7 KB, its rollout about 2.5 KB. Every task asks for another sum, so no cache answers twice, and a
model that follows the script earns a reward of 1.0 each time: a benchmark whose mean reward is not 1.0 has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

Json = dict[str, Any]

MODEL = "scripted"
AGENT = "calculator_simple_agent"
CALCULATOR = "resources_servers/calculator/configs/calculator.yaml"
OPENAI_MODEL = "responses_api_models/openai_model/configs/openai_model.yaml"
SYSTEM = (
    "You are a careful assistant who does sums. Use the calculator for every sum, however small. When you have its "
    "result, say what it is in one short sentence that ends with the number, and add nothing to it."
)
TOOL: Json = {
    "type": "function",
    "name": "calculator",
    "description": "Evaluate an arithmetic expression.",
    "parameters": {
        "type": "object",
        "properties": {"expression": {"type": "string", "description": "numbers with + - * / and parentheses"}},
        "required": ["expression"],
        "additionalProperties": False,
    },
    "strict": True,
}
THOUGHT = (
    "The user wants the value of an expression. I was told to use the calculator for every sum, so I should not work "
    "it out in my head, even though it looks easy enough. The tool takes one argument, the expression, written with "
    "plain operators. I copy it exactly as it stands in the question, parentheses included, and wait for the result. "
    "After that I can answer in one sentence which ends with the number, as I was asked to. Nothing else is needed: "
    "no steps, no second guess."
)


def expression(number: int) -> tuple[str, int]:
    """The sum of the task with this number, and its value."""
    a, b, c = number, number % 97 + 3, number % 89 + 2
    return f"({a} + {b}) * {c}", (a + b) * c


def task(number: int) -> Json:
    """One line of the input."""
    text, value = expression(number)
    return {
        "responses_create_params": {
            "input": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"What is {text} ?"}],
            "tools": [TOOL],
            "temperature": 0.7,
        },
        "expected_answer": str(value),
    }


def answer(request: Json) -> Json:
    """The scripted model: first it calls the calculator, then it says what the calculator said."""
    last = request["input"][-1]
    if last.get("type") == "function_call_output":
        content = [{"type": "output_text", "text": f"The value is {last['output']}", "annotations": []}]
        item: Json = {"type": "message", "id": "msg_2", "role": "assistant", "status": "completed", "content": content}
    else:
        requested = last["content"].removeprefix("What is ").removesuffix(" ?")
        arguments = orjson.dumps({"expression": requested}).decode()
        item = {"type": "function_call", "call_id": "call_1", "name": "calculator", "arguments": arguments}
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": THOUGHT}],
    }
    return {
        "id": "resp_0123456789abcdef",
        "object": "response",
        "created_at": 0,
        "model": MODEL,
        "status": "completed",
        "output": [thought, item],
        "usage": {"input_tokens": 180, "output_tokens": 120, "total_tokens": 300},
    }


def requests(number: int) -> tuple[Json, Json]:
    """The bodies of the two model calls of this task, as the product sends them over /v1/responses."""
    first = {**task(number)["responses_create_params"], "model": MODEL}
    result = {"type": "function_call_output", "call_id": "call_1", "output": str(expression(number)[1])}
    return first, {**first, "input": [*first["input"], *answer(first)["output"], result]}


def write_tasks(path: Path, numbers: Iterable[int]) -> None:
    """An input file."""
    with path.open("wb") as out:
        out.writelines(_lines(numbers))


def _lines(numbers: Iterable[int]) -> Iterator[bytes]:
    for number in numbers:
        yield orjson.dumps(task(number), option=orjson.OPT_APPEND_NEWLINE)


def scripted_settings() -> list[str]:
    """The command line for a collection whose model is this script, in the collector's own process."""
    block = "policy_model.responses_api_models.scripted_model"
    return [f"+config_paths=[{CALCULATOR}]", f"+{block}.function={Path(__file__).resolve()}:answer"]


def http_settings(base_url: str, endpoint: str) -> list[str]:
    """The command line for a collection whose model is behind HTTP."""
    return [
        f"+config_paths=[{CALCULATOR},{OPENAI_MODEL}]",
        f"+policy_base_url={base_url}",
        "+policy_api_key=none",
        f"+policy_model_name={MODEL}",
        f"+policy_model.responses_api_models.openai_model.endpoint={endpoint}",
    ]
