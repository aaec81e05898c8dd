"""What the checks need to know of one rollout, read once, and never more than a few numbers and short texts.

Rows may come from anywhere. What has the wrong type is told in `flaw` and counts as absent; nothing raises.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import islice
from math import isfinite
from typing import Any

import velodrome.checks.thresholds as at
from velodrome.checks.texts import OPENINGS, is_error, is_refusal, is_tool_error, runs_in_circles
from velodrome.records.bounds import is_count
from velodrome.records.conversation import text_of
from velodrome.stats.episode import is_episode
from velodrome.stats.parts import HOSTILE

Json = dict[str, Any]

_TOKEN_LIMITS = frozenset(("max_output_tokens", "max_tokens", "length", "token_limit"))
_LARGEST = 1e100  # a reward beyond it is infinite for every purpose, and its square is
_LONGEST_NAME = 64
_LONGEST_REPEAT = 18  # digits
_TOLD_BY = 200  # characters at the end of a text; with the length of all of them they tell conversations apart


class Facts:
    """One rollout. A class with defaults and not a record, because most rollouts differ in few of them."""

    flaw: str | None = None  # the first thing that makes it no rollout
    key = 0  # hashes; a row without a key has `task` 0. That of a task is the same in every process
    task = 0
    repeat = 0
    reward: float | None = None
    reward_flaw: str | None = None
    infinite: list[str] | tuple[()] = ()  # other fields that are NaN or infinite
    deferred = False
    episode = False  # of a policy: its reward is a return, its text a stand-in, its length the rules'
    empty = False
    error = False
    refusal = False
    cut = ""  # what ended it: "tokens", "steps" or ""
    length = 0  # characters the model wrote: texts, reasoning, arguments
    said = 0  # a hash of their ends
    circles = False
    loop = False
    results: list[tuple[str, bool]] | tuple[()] = ()  # of tools: the name, and whether it is an error
    unknown: list[str] | tuple[()] = ()  # tools that were called and not offered
    counted = False  # whether its tokens are
    time_flaw: str | None = None
    untimed = False
    total_s = model_s = verify_s = 0.0
    retries = 0
    rate_limited = 0

    def __init__(self, line: int) -> None:
        self.line = line


class Batch(list[Facts]):
    """Some rollouts, and what several checks ask of them; what tells something of answers leaves episodes out."""

    def __init__(self, some: list[Facts]) -> None:
        super().__init__(some)
        self.scored = [one for one in some if one.reward is not None and not one.episode]
        self.rewards: list[Any] = [one.reward for one in self.scored]
        self.timed = [one for one in some if one.total_s > 0 and not one.episode]


def facts(row: Json, line: int) -> Facts:
    """Read one row."""
    one = Facts(line)
    try:
        one.episode = is_episode(row)
        _read_reward(one, row)
        _read_meta(one, row.get("meta"))
        _read_response(one, row.get("response"))
        _read_output(one, row)
        params = row.get("responses_create_params")
        if type(params) is not dict or "input" not in params:
            flawed(one, 'no "responses_create_params.input"')
        usage = row.get("usage")
        if type(usage) is dict:
            tokens: Any = usage.get("total_tokens") or usage.get("output_tokens")
            one.counted = is_count(tokens) and tokens > 0
        elif usage is not None:
            flawed(one, '"usage" is not an object')
    except HOSTILE as error:
        deep = isinstance(error, RecursionError)
        flawed(one, "it is nested too deeply" if deep else "a part of it has a shape that no rollout has")
    return one


def flawed(one: Facts, flaw: str) -> None:
    """Remember the first flaw of a row."""
    if one.flaw is None:
        one.flaw = flaw


def _read_meta(one: Facts, meta: Any) -> None:
    if type(meta) is not dict:
        flawed(one, 'no "meta"' if meta is None else '"meta" is not an object')
        one.untimed = True
        return
    key = meta.get("key")
    if type(key) is str:
        task, _, repeat = key.rpartition("/")
        one.key = hash(key)
        if task and repeat.isdecimal():
            digest = blake2b(task.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            one.task = int.from_bytes(digest, "big")
            one.repeat = int(repeat[-_LONGEST_REPEAT:])
        else:
            flawed(one, '"meta.key" is not <task id>/<repeat>')
    else:
        flawed(one, 'no "meta.key"' if key is None else '"meta.key" is not a text')
    if meta.get("verification") == "deferred":
        one.deferred = True
        one.reward_flaw = None
    timing = meta.get("timing")
    if type(timing) is dict:
        _read_timing(one, timing)
    else:
        one.untimed = True
        if timing is not None:
            flawed(one, '"meta.timing" is not an object')


def _read_timing(one: Facts, timing: Json) -> None:
    told = timing.get
    total_s = told("total_s")
    if total_s is None:
        one.untimed = True
        return
    model_s, tools_s, verify_s = told("model_s", 0.0), told("tools_s", 0.0), told("verify_s", 0.0)
    try:
        if (
            0 <= total_s < at.LONGEST_S
            and 0 <= model_s < at.LONGEST_S
            and tools_s >= 0
            and 0 <= verify_s < at.LONGEST_S
        ):
            one.total_s, one.model_s, one.verify_s = total_s, model_s, verify_s
        else:
            one.time_flaw = "a time is negative or endless"
    except TypeError:
        one.time_flaw = "a time is not a number"
    if "retries" in timing or "rate_limited" in timing:
        retries, limited = told("retries", 0), told("rate_limited", 0)
        if is_count(retries) and is_count(limited):
            one.retries, one.rate_limited = retries, limited


def _read_reward(one: Facts, row: Json) -> None:
    reward = row.get("reward")
    if type(reward) is float or type(reward) is int:
        if -_LARGEST < reward < _LARGEST:
            one.reward = reward
        else:
            one.reward_flaw = "NaN" if reward != reward else "infinite"
    elif reward is not None:
        one.reward_flaw = "not a number"
    elif "reward" in row:
        one.deferred = True
    else:
        one.reward_flaw = "missing"
    infinite = [name for name, value in row.items() if type(value) is float and not isfinite(value)]
    if infinite:
        one.infinite = [name[:_LONGEST_NAME] for name in infinite if name != "reward"]


def _read_response(one: Facts, response: Any) -> None:
    if type(response) is not dict:
        one.empty = True
        flawed(one, 'no "response"' if response is None else '"response" is not an object')
        return
    answer = response.get("content")
    if type(answer) is not str:
        answer = text_of(answer)
    if not answer or answer.isspace():
        one.empty = True
    elif answer[0] in OPENINGS:
        one.error = is_error(answer)
        one.refusal = is_refusal(answer)
    if response.get("status") == "incomplete":
        details = response.get("incomplete_details")
        reason = details.get("reason") if type(details) is dict else None
        if reason in _TOKEN_LIMITS:
            one.cut = "tokens"
        elif reason == "max_steps":
            one.cut = "steps"


def _read_output(one: Facts, row: Json) -> None:
    output = row.get("output")
    if type(output) is not list:
        flawed(one, 'no "output"' if output is None else '"output" is not a list')
        return
    said: list[str] = []
    calls: list[tuple[Any, Any]] = []
    results: list[tuple[str, bool]] = []
    for message in output:
        if type(message) is not dict:
            flawed(one, 'a message of "output" is not an object')
            continue
        told = message.get
        role = told("role")
        if role == "assistant":
            if told("reasoning_content"):
                _read_text(one, told("reasoning_content"), said)
            if told("content"):
                _read_text(one, told("content"), said)
            if told("tool_calls"):
                _read_calls(one, told("tool_calls"), said, calls)
            if told("refusal"):
                one.refusal = True
        elif role == "tool":
            name, content = told("name"), told("content")
            if type(name) is str and type(content) is str:
                results.append((name[:_LONGEST_NAME], is_tool_error(content)))
    if results:
        one.results = results
    if calls:
        one.unknown = _unknown(one, calls, row)
        if len(calls) >= at.LOOP_CALLS:
            one.loop = _loops(calls)
    one.length = sum(map(len, said))
    one.said = hash((one.length, *[text[-_TOLD_BY:] for text in said]))


def _read_text(one: Facts, text: Any, said: list[str]) -> None:
    if type(text) is not str:
        text = text_of(text)
    said.append(text)
    if len(text) >= at.REPETITION_LEAST and runs_in_circles(text):
        one.circles = True


def _read_calls(one: Facts, called: Any, said: list[str], calls: list[tuple[Any, Any]]) -> None:
    if type(called) is not list or not all(type(call) is dict for call in called):
        flawed(one, '"tool_calls" is not a list of calls')
        return
    for call in called:
        name, arguments = call.get("name"), call.get("arguments")
        if name is None and type(call.get("function")) is dict:  # as chat completions have it
            name, arguments = call["function"].get("name"), call["function"].get("arguments")
        calls.append((name, arguments))
        said.append(arguments if type(arguments) is str else str(arguments))


def _loops(calls: list[tuple[Any, Any]]) -> bool:
    """Whether the same call, or the same few in turn, stand several times in a row."""
    for period in range(1, at.LOOP_PERIOD + 1):
        run = 0
        for before, call in zip(calls, islice(calls, period, None), strict=False):
            run = run + 1 if call == before else 0
            if run >= period * (at.LOOP_CALLS - 1):
                return True
    return False


def _unknown(one: Facts, calls: list[tuple[Any, Any]], row: Json) -> list[str]:
    """Names that were called and not offered; where no tools are on record, nothing can be said."""
    params = row.get("responses_create_params")
    tools = params.get("tools") if type(params) is dict else None
    if not tools:
        return []
    if type(tools) is not list or not all(type(tool) is dict for tool in tools):
        flawed(one, '"responses_create_params.tools" is not a list of tools')
        return []
    found = []
    before = None
    for name, _ in calls:
        if name != before:
            before = name
            for tool in tools:
                if tool.get("name") == name:
                    break
            else:
                if name not in [tool["function"].get("name") for tool in tools if type(tool.get("function")) is dict]:
                    found.append(str(name)[:_LONGEST_NAME])
    return found
