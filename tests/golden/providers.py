"""Answers of five kinds of provider in the shapes that they document, made from plain turns.

Responses as OpenAI sends them, chat completions of OpenAI, of vLLM and of llama.cpp and DeepSeek, blocks of Anthropic's
messages. A turn is `{text, reasoning, calls, refusal, finish}`, any part of which may be missing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import orjson

Json = dict[str, Any]

CREATED = 1_600_000_000


def responses(turn: Json, chance: random.Random, number: int) -> Json:
    """OpenAI's `/v1/responses`."""
    output: list[Json] = []
    if turn.get("reasoning"):
        summary = [{"type": "summary_text", "text": text} for text in turn["reasoning"].split(". ")]
        hidden = {"encrypted_content": f"gAAAA{number}"} if chance.random() < 0.5 else {}
        output.append({"id": f"rs_{number}", "type": "reasoning", "summary": summary, **hidden})
    if chance.random() < 0.1:
        action = {"type": "search", "query": "velodrome"}
        output.append({"id": f"ws_{number}", "type": "web_search_call", "status": "completed", "action": action})
    parts: list[Json] = []
    if "text" in turn:
        notes = [{"type": "url_citation", "start_index": 0, "end_index": 2, "url": "https://a.example", "title": "A"}]
        part = {"type": "output_text", "text": turn["text"], "annotations": notes if chance.random() < 0.2 else []}
        parts.append(part | {"logprobs": probs(turn["text"])} if turn.get("probs") else part)
    if "refusal" in turn:
        parts.append({"type": "refusal", "refusal": turn["refusal"]})
    if parts:
        message = {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant"}
        output.append({**message, "content": parts})
    for index, (name, arguments) in enumerate(turn.get("calls", ())):
        call = {"id": f"fc_{number}_{index}", "type": "function_call", "status": "completed", "arguments": arguments}
        output.append({**call, "call_id": f"call_{number}_{index}", "name": name})
    cut = turn.get("finish")
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": CREATED + number,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": cut} if cut else None,
        "instructions": None,
        "max_output_tokens": None,
        "model": "gpt-5-mini",
        "output": output,
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": None},
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "truncation": "disabled",
        "usage": {
            "input_tokens": 40 + number,
            "input_tokens_details": {"cached_tokens": 8},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 4},
            "total_tokens": 60 + number,
        },
        "user": None,
        "metadata": {"job": "a"} if chance.random() < 0.3 else {},
    }


def openai_chat(turn: Json, chance: random.Random, number: int) -> Json:
    """OpenAI's `/v1/chat/completions`."""
    message: Json = {"role": "assistant", "content": turn.get("text"), "refusal": turn.get("refusal")}
    message["annotations"] = []
    if turn.get("calls"):
        message["tool_calls"] = calls(turn, number)
    details = {"reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0}
    usage = {"prompt_tokens": 40 + number, "completion_tokens": 20, "total_tokens": 60 + number}
    usage |= {"prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0}, "completion_tokens_details": details}
    choice = {"index": 0, "message": message, "logprobs": logprobs(turn), "finish_reason": finish(turn)}
    return completion(number, "gpt-4o-mini", choice, usage, service_tier="default", system_fingerprint="fp_1")


def vllm(turn: Json, chance: random.Random, number: int) -> Json:
    """vLLM's chat, with reasoning and token ids."""
    message: Json = {"role": "assistant", "content": turn.get("text"), "refusal": None, "annotations": None}
    message |= {"audio": None, "function_call": None, "tool_calls": calls(turn, number)}
    message["reasoning_content" if chance.random() < 0.5 else "reasoning"] = turn.get("reasoning")
    choice: Json = {"index": 0, "message": message, "logprobs": logprobs(turn), "finish_reason": finish(turn)}
    choice["stop_reason"] = "###" if chance.random() < 0.2 else None
    more: Json = {"prompt_logprobs": None, "kv_transfer_params": None}
    if turn.get("ids"):
        count = len((turn.get("text") or "").split()) if turn.get("probs") else 20
        choice["token_ids"] = list(range(100, 100 + count))
        more["prompt_token_ids"] = list(range(number + 3))
    usage = {"prompt_tokens": number + 3, "total_tokens": number + 23, "completion_tokens": 20}
    return completion(number, "qwen3-8b", choice, {**usage, "prompt_tokens_details": None}, **more)


def llama_cpp(turn: Json, chance: random.Random, number: int) -> Json:
    """llama.cpp's server and DeepSeek: arguments as objects, content in parts, counts of their own."""
    text: Any = turn.get("text")
    if text and chance.random() < 0.2:
        text = [{"type": "text", "text": text}]
    message: Json = {"role": "assistant", "content": text}
    if turn.get("reasoning"):
        message["reasoning_content"] = turn["reasoning"]
    if turn.get("calls"):
        message["tool_calls"] = calls(turn, number)
        if chance.random() < 0.3:
            function = message["tool_calls"][0]["function"]
            function["arguments"] = {"text": "as an object"}
    found = logprobs(turn)
    if found:
        found = {"content": [{"id": 100 + at, **entry} for at, entry in enumerate(found["content"])]}
    choice: Json = {"finish_reason": finish(turn), "index": 0, "message": message}
    choice |= {"logprobs": found} if found else {}
    generated = len(found["content"]) if found else 20
    usage: Json = {"completion_tokens": generated, "prompt_tokens": 12, "total_tokens": 12 + generated}
    if chance.random() < 0.5:
        usage |= {"prompt_cache_hit_tokens": 0, "prompt_cache_miss_tokens": 12}
    timings = {"prompt_n": 12, "prompt_ms": 3.5, "predicted_n": 20, "predicted_ms": 88.25}
    return completion(number, "deepseek-chat", choice, usage, timings=timings)


def anthropic(turn: Json, chance: random.Random, number: int) -> list[Json]:
    """The blocks of a message of Anthropic."""
    blocks: list[Json] = []
    if turn.get("reasoning"):
        signed = {"signature": f"Eq{number}"} if chance.random() < 0.7 else {}
        blocks.append({"type": "thinking", "thinking": turn["reasoning"], **signed})
    if chance.random() < 0.1:
        blocks.append({"type": "redacted_thinking", "data": f"Em{number}"})
    if turn.get("text"):
        blocks.append({"type": "text", "text": turn["text"]})
    for index, (name, arguments) in enumerate(turn.get("calls", ())):
        value = orjson.loads(arguments) if arguments.endswith("}") else {"INVALID_JSON": arguments}
        blocks.append({"type": "tool_use", "id": f"toolu_{number}_{index}", "name": name, "input": value})
    return blocks or [{"type": "text", "text": "…"}]


def completion(number: int, model: str, choice: Json, usage: Json, **more: Any) -> Json:
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": CREATED + number, "model": model}
    return {**head, "choices": [choice], "usage": usage, **more}


def calls(turn: Json, number: int) -> list[Json]:
    return [
        {"id": f"call_{number}_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for index, (name, arguments) in enumerate(turn.get("calls", ()))
    ]


def finish(turn: Json) -> str:
    words = {"max_output_tokens": "length", "content_filter": "content_filter"}
    return words.get(turn.get("finish", "")) or ("tool_calls" if turn.get("calls") else "stop")


def probs(text: str) -> list[Json]:
    return [
        {"token": word, "logprob": -len(word) / 8, "bytes": list(word.encode()), "top_logprobs": []}
        for word in text.split()
    ]


def logprobs(turn: Json) -> Json | None:
    return {"content": probs(turn["text"])} if turn.get("probs") and turn.get("text") else None


CHAT: dict[str, Callable[[Json, random.Random, int], Json]] = {
    "openai_chat": openai_chat,
    "vllm": vllm,
    "llama_cpp": llama_cpp,
}


def chunks(whole: Json) -> list[Json]:
    """A chat completion as the chunks that it would be streamed in."""
    choice = whole["choices"][0]
    message, head = choice["message"], {name: whole[name] for name in ("id", "created", "model")}
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    for name in ("reasoning_content", "reasoning", "content", "refusal"):
        text = message.get(name)
        if isinstance(text, str):
            deltas += [{name: piece} for piece in (text[: len(text) // 2], text[len(text) // 2 :]) if piece]
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        arguments = function["arguments"]
        text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
        begun = {"name": function["name"], "arguments": text[:3]}
        deltas.append({"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": begun}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": text[3:]}}]})
    made = [{**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": each}]} for each in deltas]
    last = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"], "logprobs": choice.get("logprobs")}
    last |= {name: choice[name] for name in ("token_ids", "stop_reason") if choice.get(name)}
    ids = {"prompt_token_ids": whole["prompt_token_ids"]} if "prompt_token_ids" in whole else {}
    made.append({**head, **ids, "object": "chat.completion.chunk", "choices": [last]})
    made.append({**head, "object": "chat.completion.chunk", "choices": [], "usage": whole["usage"]})
    return made
