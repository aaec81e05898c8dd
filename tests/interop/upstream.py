"""A server that answers as vLLM does: token ids where its endpoints have them, if they are asked for in its words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.http_server import Quiet, serving

Json = dict[str, Any]

PROMPT = [1, 2, 3]
TEXT = ("Th", "", "irty-six")  # the second token makes no text of its own
IDS = [7, 8, 9]
PROBS = [{"token": text, "logprob": -0.5, "bytes": list(text.encode()), "top_logprobs": []} for text in TEXT]
USAGE = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}


@dataclass
class Upstream:
    """Its address, and the faults it answers with first: a status and a `Retry-After`."""

    url: str = ""
    faults: list[tuple[int, str | None]] = field(default_factory=list)


@contextmanager
def answering() -> Iterator[Upstream]:
    upstream = Upstream()

    class Handler(Quiet):
        def do_POST(self) -> None:
            body = json.loads(self.body())
            if upstream.faults:
                self.fault(*upstream.faults.pop(0))
            else:
                answer = _response if self.path.endswith("/responses") else _completion
                self.reply(200, "application/json", json.dumps(answer(body)).encode())

        def fault(self, status: int, after: str | None) -> None:
            body = json.dumps({"error": {"message": "busy", "code": status}}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if after is not None:
                self.send_header("Retry-After", after)
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as url:
        upstream.url = f"{url}/v1"
        yield upstream


def _completion(body: Json) -> Json:
    choice: Json = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "".join(TEXT)}}
    choice["logprobs"] = {"content": PROBS} if body.get("logprobs") else None
    choice["token_ids"] = IDS if body.get("return_token_ids") else None
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"], "usage": USAGE}
    return {**head, "choices": [choice], "prompt_token_ids": PROMPT if body.get("return_token_ids") else None}


def _response(body: Json) -> Json:
    asked = "message.output_text.logprobs" in (body.get("include") or ())
    part = {"type": "output_text", "text": "".join(TEXT), "annotations": [], "logprobs": PROBS if asked else None}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    raw = body.get("enable_response_messages")
    return {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": body["model"],
        "status": "completed",
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 3, "output_tokens": 3, "total_tokens": 6},
        "input_messages": [{"message": "?", "tokens": PROMPT}] if raw else None,
        "output_messages": [{"message": "".join(TEXT), "tokens": IDS}] if raw else None,
    }
