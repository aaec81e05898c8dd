"""Chat templates render our `sft` records: what the model did is in the text once, or the docs say what is not.

The templates are the files in TRL, rendered by transformers.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.corpus import CASES, FEATURES, LONG_ID, MARKED, Event
from tests.interop.law import KEPT, LEFT_OUT, exported, hold

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

TEMPLATES = {
    "Qwen2.5": "qwen2_5",
    "Qwen3": "qwen3",
    "Llama 3.1": "llama3_1",
    "gpt-oss": "gptoss",
    "Gemma 3": "gemma3",
    "Gemma 4": "gemma4_v5",
    "GLM 4.5": "glm4moe",
}
UNSEEN = ("failed rollout", "token ids")  # by templates
INLINE = ("reasoning", "reasoning_beside_calls")


def folder() -> Path:
    found = importlib.util.find_spec("trl")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "chat_templates"


def rendered(template: str, record: dict[str, Any]) -> str | None:
    """The text, or None if the template refuses the record."""
    from jinja2 import TemplateError, UndefinedError
    from transformers.utils.chat_template_utils import render_jinja_template

    tools = record.get("tools")
    try:
        texts, _ = render_jinja_template(
            [record["messages"]],
            tools=json.loads(tools) if isinstance(tools, str) else tools,
            chat_template=(folder() / f"{template}.jinja").read_text(encoding="utf-8"),
            bos_token="",
            eos_token="",
        )
    except (TemplateError, UndefinedError, TypeError):
        return None
    return str(texts[0])


def leaves(value: Any) -> Iterator[str]:
    """Names and values of arguments, in order, as templates without JSON write them."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each)
    else:
        yield value if isinstance(value, str) else json.dumps(value)


def place(event: Event, text: str, start: int) -> int:
    """Where an event ends in the text after a place, or -1."""
    if event[0] != "called":
        at = text.find(event[-1], start)
        return at if at < 0 else at + len(event[-1])
    at = text.find(event[2], start)
    whole = text.find(json.dumps(event[3], ensure_ascii=False), at)
    if at < 0 or whole >= 0:
        return whole
    for arguments in (event[3], dict(sorted(event[3].items()))):
        end = at
        for leaf in leaves(arguments):
            end = text.find(leaf, end) if end >= 0 else end
        if end >= 0:
            return end
    return -1


def missing(event: Event, text: str, start: int) -> str:
    """What the text does not have of an event after a place, in words."""
    if place(event, text, start) >= 0:
        return ""
    if place(event, text, 0) >= 0:
        return "in another order"
    if event[0] != "called" and event[-1].strip() in text:
        return "trimmed"
    kinds = {"thought": "reasoning", "said": "text", "called": "call", "got": "result", "told": "prompt"}
    return "taken for marks" if event[-1] == MARKED else f"without the {kinds[event[0]]}"


def verdict(name: str, text: str | None, happened: list[Event]) -> str:
    if text is None:
        return "refused"
    start, flaws = 0, []
    for event in happened:
        flaw = missing(event, text, start)
        flaws.append(flaw)
        start = start if flaw else place(event, text, start)
        if not flaw and event[0] in ("said", "thought") and event[1] and text.count(event[1]) != 1:
            flaws.append("more than once")
    return ", ".join(dict.fromkeys(filter(None, flaws))) or KEPT


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The corpus as `sft`, by the settings that matter to templates."""
    result = {}
    for setting in ({}, {"arguments": "text"}, {"reasoning": "inline"}):
        path, names, _ = exported("sft", tmp_path_factory.mktemp("sft"), "sft.jsonl", **setting)
        lines = map(json.loads, path.read_bytes().splitlines())
        result["".join(setting)] = dict(zip(names, lines, strict=True))
    return result


@pytest.mark.parametrize("reader", TEMPLATES)
def test_what_the_model_did_is_in_the_text_or_the_docs_say_what_is_not(
    reader: str, records: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(os.environ, "HF_HUB_OFFLINE", "1")
    words: dict[str, list[str]] = {feature: [] for feature in FEATURES if feature not in UNSEEN}
    for name, case in CASES.items():
        if case.feature in UNSEEN:
            continue
        record = records[""].get(name)
        text = rendered(TEMPLATES[reader], record) if record else None
        assert LONG_ID not in (text or ""), "the docs say that no template writes call ids"
        words[case.feature].append(verdict(name, text, case.happened) if record else LEFT_OUT)
    result = {feature: " or ".join(dict.fromkeys(each)) for feature, each in words.items()}
    record = records["arguments"]["one_call"]
    text = rendered(TEMPLATES[reader], record)
    happened = CASES["one_call"].happened
    written = record["messages"][1]["tool_calls"][0]["function"]["arguments"]
    encoded = text is not None and json.dumps(written) in text
    result["one call, `--arguments text`"] = "JSON inside JSON" if encoded else verdict("one_call", text, happened)
    for name in INLINE:
        text = rendered(TEMPLATES[reader], records["reasoning"][name])
        result[f"{CASES[name].feature}, `--reasoning inline`"] = verdict(name, text, CASES[name].happened)
    hold(reader, {feature: word for feature, word in result.items() if word != LEFT_OUT}, "templates")
