"""A server that answers as vLLM does: token ids where its endpoints have them, if they are asked for in its words."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Json = dict[str, Any]

PROMPT = [1, 2, 3]
TEXT = ("Th", "", "irty-six")  # the second token makes no text of its own
IDS = [7, 8, 9]
PROBS = [{"token": text, "logprob": -0.5, "bytes": list(text.encode()), "top_logprobs": []} for text in TEXT]
USAGE = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}


class Upstream:
    """Its address, what it was asked, and the faults it answers with first: a status and a `Retry-After`."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Json]] = []
        self.faults: list[tuple[int, str | None]] = []
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                upstream.seen.append((self.path, body))
                if upstream.faults:
                    status, after = upstream.faults.pop(0)
                    self._send(status, json.dumps({"error": {"message": "busy", "code": status}}), after=after)
                elif body.get("stream"):
                    chunks = [*_chunks(body), "[DONE]"]
                    text = "".join(
                        f"data: {each if isinstance(each, str) else json.dumps(each)}\n\n" for each in chunks
                    )
                    self._send(200, text, kind="text/event-stream")
                else:
                    answer = _response if self.path.endswith("/responses") else _completion
                    self._send(200, json.dumps(answer(body)))

            def _send(
                self, status: int, text: str, *, kind: str = "application/json", after: str | None = None
            ) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text.encode())))
                if after is not None:
                    self.send_header("Retry-After", after)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _completion(body: Json) -> Json:
    choice: Json = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "".join(TEXT)}}
    choice["logprobs"] = {"content": PROBS} if body.get("logprobs") else None
    choice["token_ids"] = IDS if body.get("return_token_ids") else None
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"], "usage": USAGE}
    return {**head, "choices": [choice], "prompt_token_ids": PROMPT if body.get("return_token_ids") else None}


def _chunks(body: Json) -> list[Json]:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    chunks = [
        {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": PROMPT}
    ]
    for at, text in enumerate(TEXT):
        choice = {"index": 0, "delta": {"content": text} if text else {}, "logprobs": {"content": [PROBS[at]]}}
        last = {"finish_reason": "stop"} if at == len(TEXT) - 1 else {}
        chunks.append({**head, "choices": [{**choice, "token_ids": [IDS[at]], **last}]})
    return [*chunks, {**head, "choices": [], "usage": USAGE}]


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
