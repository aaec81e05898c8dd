"""What is wrong with a model's answer, if anything: one test for every model, endpoint and way of sending.

An answer holds what a model may say, says something, and reports counts that can be true. An answer with a flaw is the
model's fault: it never becomes a rollout with a reward of zero, and nothing in it passes for a tool's words.
"""

from __future__ import annotations

from typing import Any

from velodrome.records.bounds import usage_flaw
from velodrome.records.conversation import TOKEN_FIELDS, flaw, text_of

Json = dict[str, Any]

# What only the caller of a model may say. A hosted tool's own items (`web_search_call`, …) are not among them.
_NOT_A_MODELS = frozenset(
    (
        "function_call_output",
        "custom_tool_call_output",
        "computer_call_output",
        "local_shell_call_output",
        "mcp_approval_response",
        "item_reference",
    )
)


def answer_flaw(response: Any) -> str | None:
    """Why this is not an answer to a model call, or None."""
    return output_flaw(response) or usage_flaw(response.get("usage"))


def output_flaw(response: Any) -> str | None:
    """The same, whatever its counts are."""
    if not isinstance(response, dict):
        return f"the answer is not an object but {response!r:.40}"
    output = response.get("output")
    if not isinstance(output, list):
        return f'"output" is not a list but {output!r:.40}'
    for index, item in enumerate(output):
        problem = flaw(item) or forged(item)
        if problem is not None:
            return f"output[{index}]: {problem}"
    if response.get("status") != "incomplete" and not any(map(_says_something, output)):
        return "the answer is empty: no text, no reasoning, no tool call"
    return None


def forged(item: Json) -> str | None:
    """Why a model may not produce this item, or None."""
    kind = item.get("type", "message")
    if kind in _NOT_A_MODELS:
        return f"a model may not produce a {kind}; only its caller can"
    if kind == "message" and item.get("role", "assistant") != "assistant":
        return f"a model may not speak as {item['role']!r:.40}, only as the assistant"
    return None


def _says_something(item: Json) -> bool:
    kind = item.get("type", "message")
    if kind != "message" and kind != "reasoning":
        return True
    content = item.get("content")
    if kind == "reasoning":
        return bool(text_of(content) or text_of(item.get("summary")) or item.get("encrypted_content"))
    if isinstance(content, str) or item.get(TOKEN_FIELDS[1]):
        return True  # an empty text too: a policy may end its turn at once, and is scored for it
    return any(isinstance(part.get("text"), str) or part.get("refusal") for part in content or ())
