"""What the index keeps of one line: its numbers, its names as hashes, and the first and last words of its text.

A row of the wrong shape is mended, not refused: what cannot be used is left out and a note says so. Only what is no
JSON object at all counts as unreadable.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

from velodrome.index.answers import DEFERRED_STATE, FAILED_STATE, KEPT_STATE, STATES
from velodrome.index.query import MEASURES
from velodrome.records.bounds import MAX_NUMBER, is_count
from velodrome.records.conversation import text_of

Json = dict[str, Any]

HOSTILE = (AttributeError, KeyError, IndexError, TypeError, ValueError, RecursionError)
EXCERPT = 200  # characters of a prompt's start and an answer's end
TEXT = 4096  # characters of each that can be searched
_NAMES = frozenset({"id", "task_id", "reward"})  # the first two are names and no measures; a reward has its own column
_OWN = frozenset(MEASURES) | {"number", "n", "pass_rate", "mean_reward"}
_MOST_EXTRA = 256
_LONGEST_NAME = 100
_LONGEST_KEY = 1000
_LONGEST_ERROR = 2000
_WHOLE = 2**33  # of a whole number in a column: a billion of them are added up in 64 bits
_NONE: Json = {}
_KEPT, _DEFERRED, _FAILED = (STATES.index(state) for state in (KEPT_STATE, DEFERRED_STATE, FAILED_STATE))
_NUMERIC = frozenset({float, int, bool})
_PLAIN = frozenset({float, int, type(None)})
_TEXT_PARTS = ("key", "agent")
_FAILURES_OWN = frozenset({"attempt"})
_ID = re.compile(
    r"0[xX][0-9a-fA-F]+|(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{6,}"
    r"|(?<![A-Za-z_\d.])(?![45]\d\d(?: [A-Z]|:|$))\d+(?:\.\d+)*"  # a number, but for the status of an answer
)


def hashed(text: str) -> int:
    """A name as a signed 64-bit number, the same in every process."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big", signed=True)


def hashed_key(task: int, repeat: int | None) -> int:
    """A key as such a number, from its task as one."""
    if repeat is None:
        return task
    mixed = (task * 1_000_003 + repeat + 1) & 0xFFFF_FFFF_FFFF_FFFF
    return mixed - (1 << 64) if mixed >> 63 else mixed


def key_of(text: str) -> int:
    """The same from the whole key."""
    task, repeat = split(text)
    return hashed_key(hashed(task), repeat)


def number(value: Any) -> float | int | None:
    """The value if it is a number a column can hold, else None."""
    kind = type(value)
    if kind is float:
        return value if -MAX_NUMBER <= value <= MAX_NUMBER else None
    if kind is int:
        return value if -_WHOLE <= value <= _WHOLE else float(value)  # the sum of a billion of them is a column's too
    return int(value) if kind is bool else None


# One rollout, or one failure, as the index stores it: key, task, agent, status, its state's place in STATES, error,
# the numbers of MEASURES, other numbers by name, prompt, answer. A plain tuple: there is one for every line.
Numbers = tuple[float | int | None, ...]
Facts = tuple[str, str, str, str, int, str | None, Numbers, dict[str, float | int], str, str]


def facts(row: Json, line: int, *, failed: bool) -> tuple[Facts, str | None]:
    """What is kept of a row, and what was wrong with it, in words."""
    try:
        return (_failure(row) if failed else _kept(row)), None
    except HOSTILE:
        mended, flaw = _mended(row, line, failed)
    return (_failure(mended) if failed else _kept(mended)), flaw


def _kept(row: Json) -> Facts:
    meta = row["meta"]
    output = row.get("output") or ()
    tools = turns = 0
    for message in output:
        if message.get("role") == "assistant":
            turns += 1
            calls = message.get("tool_calls")
            if calls:
                tools += len(calls)
    response = row.get("response") or _NONE
    answer = response.get("content")
    if type(answer) is not str:
        answer = _last_text(output)
    status = response.get("status")
    reward = row.get("reward")
    deferred = reward is None and meta.get("verification") == "deferred"
    key, task, repeat, agent = _named(meta)
    return (
        key,
        task,
        agent,
        status if type(status) is str else "",
        _DEFERRED if deferred else _KEPT,
        None,
        _measures(meta, row.get("usage") or _NONE, (reward, tools, turns, len(answer), repeat)),
        _extra(row),
        first_words(asked(row)),
        last_words(answer),
    )


def _failure(row: Json) -> Facts:
    output = row.get("partial") or ()
    turns = sum(message.get("role") == "assistant" for message in output)
    tools = sum(len(message.get("tool_calls") or ()) for message in output)
    error = one_line(f"{row.get('boundary') or '?'}: {row.get('error') or ''}"[:_LONGEST_ERROR])
    answer = _last_text(output)
    key, task, repeat, agent = _named(row)
    numbers = _measures(row, row.get("usage") or _NONE, (None, tools, turns, len(answer), repeat))
    extra = {name: row[name] for name in _FAILURES_OWN if number(row.get(name)) is not None}
    return key, task, agent, "", _FAILED, error, numbers, extra, first_words(asked(row)), last_words(answer)


def _named(meta: Json) -> tuple[str, str, int | None, str]:
    """Key, task, repeat, agent."""
    key, agent = meta["key"], meta.get("agent", "")
    if type(key) is not str or type(agent) is not str or len(key) > _LONGEST_KEY or len(agent) > _LONGEST_KEY:
        raise TypeError(key)
    task, repeat = split(key)
    return key, task, repeat, agent


def split(key: str) -> tuple[str, int | None]:
    """Task and repeat of a key; where the end is no plain number, all is the task."""
    task, _, repeat = key.rpartition("/")
    plain = repeat.isdecimal() and repeat.isascii() and len(repeat) < 10 and (repeat[0] != "0" or repeat == "0")
    return (task, int(repeat)) if plain else (key, None)


def _measures(meta: Json, usage: Json, counted: tuple[Any, int, int, int, int | None]) -> Numbers:
    """In the order of MEASURES. `counted`: reward, tools, turns, length, repeat."""
    reward, tools, turns, length, repeat = counted
    told, used = (meta.get("timing") or _NONE).get, usage.get
    total, asked, answered = used("total_tokens"), used("input_tokens"), used("output_tokens")
    if not (is_count(total) and is_count(asked) and is_count(answered)):
        total, asked, answered = [each if is_count(each) else None for each in (total, asked, answered)]
    values = (
        reward,
        total,
        asked,
        answered,
        tools,
        turns,
        length,
        told("total_s"),
        told("model_s"),
        told("tools_s"),
        told("verify_s"),
        told("queue_s"),
        told("retries", 0),
        repeat,
        meta.get("task_index"),
        meta.get("finished_at"),
    )
    plain = _PLAIN.issuperset(map(type, values))
    given = [each for each in values if each is not None] if plain else ()
    return values if given and min(given) >= -_WHOLE and max(given) <= _WHOLE else tuple(map(number, values))


def _extra(row: Json) -> dict[str, float | int]:
    """Every other top-level number, by name. One whose name is taken is called `row.<name>`."""
    found: dict[str, float | int] = {}
    for name, value in row.items():
        if type(value) in _NUMERIC and name not in _NAMES:
            value = number(value)
            if value is not None and len(name) <= _LONGEST_NAME:
                found[f"row.{name}" if name in _OWN else name] = value
                if len(found) >= _MOST_EXTRA:
                    break
    return found


def _mended(row: Json, line: int, failed: bool) -> tuple[Json, str]:
    """The row with everything of a wrong type left out, and what that was."""
    mended, wrong = dict(row), []
    for name, kind in (("usage", dict), ("response", dict), ("output", list), ("partial", list), ("timing", dict)):
        if mended.get(name) is not None and not isinstance(mended[name], kind):
            wrong.append(name)
            del mended[name]
    for name in ("output", "partial"):
        if name in mended and mended[name] is not None:
            mended[name] = [_mended_message(each) for each in mended[name] if isinstance(each, dict)]
            if mended[name] != row[name]:
                wrong.append(name)
    meta = mended if failed else row.get("meta")
    names = dict(meta) if isinstance(meta, dict) else {}
    for name in _TEXT_PARTS:
        value = names.get(name)
        if not isinstance(value, str) or len(value) > _LONGEST_KEY:
            if name in names or name == "key":
                wrong.append(name if failed else f"meta.{name}")
            names[name] = f"line {line}" if name == "key" else ""
    if names.get("timing") is not None and not isinstance(names["timing"], dict):
        wrong.append("timing" if failed else "meta.timing")
        del names["timing"]
    mended = {**mended, **names} if failed else {**mended, "meta": names}
    for name in ("boundary", "error") if failed else ():
        mended[name] = str(mended.get(name) or "")[:_LONGEST_ERROR]
    return mended, f"no usable {', '.join(dict.fromkeys(wrong)) or 'shape'}; shown without"


def _mended_message(message: Json) -> Json:
    calls = message.get("tool_calls")
    return message if calls is None or isinstance(calls, list) else {**message, "tool_calls": None}


def asked(row: Json) -> str:
    """What the user asked: the first user message, else the first text there is."""
    params = row.get("responses_create_params")
    asked = params.get("input") if isinstance(params, dict) else None
    if isinstance(asked, str):
        return asked
    first = ""
    for item in asked if isinstance(asked, list) else ():
        if isinstance(item, dict):
            text = text_of(item.get("content"))
            if text and item.get("role") == "user":
                return text
            first = first or text
    return first


def texts(row: Json, *, failed: bool) -> tuple[str, str]:
    """What can be searched: all that was asked, the user's words first, and all that was answered, its end first."""
    params = row.get("responses_create_params")
    params = params if isinstance(params, dict) else {}
    told = params.get("input")
    items = told if isinstance(told, list) else [{"role": "user", "content": told}]
    items = [item for item in items if isinstance(item, dict)]
    users = [text_of(item.get("content")) for item in items if item.get("role") == "user"]
    others = [text_of(item.get("content")) for item in items if item.get("role") != "user"]
    others.append(text_of(params.get("instructions")))
    output = row.get("partial" if failed else "output")
    said = []
    for message in output if isinstance(output, list) else ():
        if isinstance(message, dict) and message.get("role") == "assistant":
            said.append(text_of(message.get("content")))
    response = row.get("response")
    content = response.get("content") if isinstance(response, dict) else None
    if not said and isinstance(content, str):
        said.append(content)
    if failed:
        said.append(str(row.get("error") or ""))
    return "\n".join([*users, *others])[:TEXT], "\n".join(said)[-TEXT:]


def _last_text(output: Any) -> str:
    for message in reversed(output):
        if message.get("role") == "assistant":
            return text_of(message.get("content"))
    return ""


def one_line(text: str) -> str:
    """The text without line ends and runs of blanks."""
    return " ".join(text.split())


def first_words(text: str) -> str:
    """The start of a text, on one line."""
    start = text[:EXCERPT]
    return start if _plain(start) else " ".join(text[: 2 * EXCERPT].split())[:EXCERPT]


def last_words(text: str) -> str:
    """The end of a text, on one line."""
    end = text[-EXCERPT:]
    return end if _plain(end) else " ".join(text[-2 * EXCERPT :].split())[-EXCERPT:]


def _plain(text: str) -> bool:
    """Whether a text is surely one line, seen at a glance."""
    return text.isascii() and "\n" not in text and "\r" not in text and "\t" not in text


def pattern(message: str) -> str:
    """The message with numbers and ids folded, so that failures of one kind look the same."""
    return _ID.sub("#", message[: 2 * EXCERPT])[:EXCERPT]
