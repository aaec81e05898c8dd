"""The fields of a request that models are known to take, and which of them a misspelt one was probably meant to be.

Servers have fields of their own, so an unknown one is never an error. One that looks like a known one is worth a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

KNOWN = frozenset(
    (
        *("input", "messages", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_tool_calls"),
        *("model", "metadata", "reasoning", "reasoning_effort", "text", "response_format", "verbosity"),
        *("max_output_tokens", "max_tokens", "max_completion_tokens", "min_tokens"),
        *("temperature", "top_p", "top_k", "min_p", "seed", "n", "stop", "stop_token_ids", "ignore_eos"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty", "repeat_penalty", "logit_bias"),
        *("logprobs", "top_logprobs", "prompt_logprobs", "return_token_ids", "return_tokens_as_token_ids"),
        *("user", "store", "stream", "stream_options", "include", "background", "truncation", "service_tier"),
        *("previous_response_id", "prompt", "prompt_cache_key", "safety_identifier", "conversation"),
        *("chat_template_kwargs", "extra_body", "guided_json", "guided_regex", "priority", "skip_special_tokens"),
    )
)


def misspelt(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each field that is not known but looks like one that is, with that one."""
    for name in params.keys() - KNOWN:
        near = get_close_matches(name, KNOWN, 1, cutoff=0.8)
        if near:
            yield name, near[0]
