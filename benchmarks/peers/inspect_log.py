"""Rollouts as a log of Inspect, for its viewer: `python -m` is not needed, it runs with Inspect's own interpreter.

.interop/inspect/bin/python benchmarks/peers/inspect_log.py rollouts.jsonl log.eval
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, write_eval_log
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentImage,
    ContentReasoning,
    ContentText,
    ModelOutput,
)
from inspect_ai.scorer import Score
from inspect_ai.tool import ToolCall

Json = dict[str, Any]


def content(value: Any) -> Any:
    """Texts as they are; pictures as pictures; the rest as its JSON."""
    if not isinstance(value, list):
        return value or ""
    parts: list[Any] = []
    for part in value:
        image = part.get("image_url")
        image = image.get("url") if isinstance(image, dict) else image
        text = part.get("text")
        parts.append(ContentImage(image=image) if image else ContentText(text=text or json.dumps(part)))
    return parts


def message(one: Json) -> Any:
    """A message of ours as one of theirs."""
    role, said = one["role"], content(one.get("content"))
    if role == "system":
        return ChatMessageSystem(content=said)
    if role == "user":
        return ChatMessageUser(content=said)
    if role == "tool":
        return ChatMessageTool(content=said, tool_call_id=one.get("tool_call_id"), function=one.get("name"))
    calls = [
        ToolCall(id=call["id"], function=call["name"], arguments=json.loads(call["arguments"]))
        for call in one.get("tool_calls") or ()
    ]
    if one.get("reasoning_content"):
        said = [ContentReasoning(reasoning=one["reasoning_content"]), ContentText(text=said or "")]
    return ChatMessageAssistant(content=said, tool_calls=calls or None)


def sample(row: Json) -> EvalSample:
    """A rollout as a sample with a score."""
    prompt = row["responses_create_params"]["input"]
    messages = [
        message(each) for each in ([{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt)
    ]
    asked = list(messages)
    messages += [message(each) for each in row["output"]]
    task, _, repeat = row["meta"]["key"].rpartition("/")
    return EvalSample(
        id=task,
        epoch=int(repeat) + 1,
        input=asked,
        target=str(row.get("expected") or row.get("expected_answer") or ""),
        messages=messages,
        output=ModelOutput.from_content("model", str(row["output"][-1].get("content") or "")),
        scores={"reward": Score(value=row["reward"], answer=str(row["output"][-1].get("content") or "")[-60:])},
        metadata={name: row[name] for name in ("kind", "difficulty") if name in row},
        total_time=row["meta"]["timing"].get("total_s"),
    )


def convert(rollouts: Path, log: Path) -> int:
    """Write the log; how many samples it has."""
    samples = [sample(json.loads(line)) for line in rollouts.open()]
    spec = EvalSpec(
        created="2026-11-18T00:00:00+00:00",
        task=rollouts.stem,
        dataset=EvalDataset(name=rollouts.stem, samples=len(samples)),
        model="model",
        config=EvalConfig(epochs=max(each.epoch for each in samples)),
    )
    write_eval_log(EvalLog(status="success", eval=spec, samples=samples), str(log))
    return len(samples)


if __name__ == "__main__":
    print(convert(Path(sys.argv[1]), Path(sys.argv[2])))
