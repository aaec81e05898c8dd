"""What the tests of environments share: a response that says one thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def says() -> Callable[..., dict[str, Any]]:
    """An OpenAI Response with tool calls (name, arguments, output) and a final text."""

    def response(text: str, *calls: tuple[str, str, str]) -> dict[str, Any]:
        items: list[dict[str, Any]] = []
        for at, (name, arguments, output) in enumerate(calls):
            items.append({"type": "function_call", "call_id": f"c{at}", "name": name, "arguments": arguments})
            items.append({"type": "function_call_output", "call_id": f"c{at}", "output": output})
        items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
        return {"output": items}

    return response
