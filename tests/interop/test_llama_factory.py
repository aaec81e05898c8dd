"""LLaMA-Factory trains on what the model did: `sharegpt` through its own loader, converter and templates."""

from __future__ import annotations

import json
from pathlib import Path

import qwen_text
from corpus import CASES, Case, Event, with_marks
from law import exported, hold, record, verdicts
from programs import ROOT, run

from velodrome.exchange.export.sharegpt import FORMAT
from velodrome.responses_api_models.turns import nested

HERE = Path(__file__).parent
ENTRY = FORMAT.usage.split("```json\n")[1].split("```")[0]  # of dataset_info.json, as the card shows it

Pieces = list[tuple[bool, str]]


def read(folder: Path, file: Path, *templates: str) -> list[list[Pieces]]:
    """Each record in each template, in pieces that are trained on or not."""
    (folder / "dataset_info.json").write_text(ENTRY.replace("FILE.jsonl", file.name))
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf"), "OMP_NUM_THREADS": "1"}
    run("llama_factory", HERE / "llama_factory_read.py", folder, *templates, **offline)
    written: dict[str, list[Pieces]] = json.loads((folder / "result.json").read_text())
    return [written[template] for template in templates]


def expected(case: Case) -> tuple[list[Event] | None, str]:
    if case.name == "marks":
        return None, "taken for marks"
    if case.name == "tokens":
        return case.happened, "text only"
    earlier = "earlier turns" in case.feature
    return qwen_text.without_ids(case.happened), "kept, and trained on" if earlier else qwen_text.word(case)


def test_llama_factory_trains_on_what_the_model_did(tmp_path: Path):
    path, names, unfit = exported("sharegpt", tmp_path, "sharegpt.jsonl")
    with path.open("ab") as file:
        file.write(record("sharegpt", with_marks()))
    in_qwen, in_thinking, in_llama = read(tmp_path, path, "qwen3_nothink", "qwen3", "llama3")
    assert qwen_text.learned(in_qwen.pop()) == qwen_text.own(with_marks().made)
    qwen = dict(zip(names, in_qwen, strict=True))
    texts = {name: "".join(piece for _, piece in pieces) for name, pieces in qwen.items()}
    seen = {name: qwen_text.events(text) for name, text in texts.items()}
    hold("sharegpt: LLaMA-Factory, qwen3_nothink", verdicts(seen, unfit, expected))
    for name, pieces in qwen.items():
        assert qwen_text.tools(texts[name]) == [nested(tool) for tool in CASES[name].tools]
        if name != "marks":
            assert qwen_text.learned(pieces) == qwen_text.own(CASES[name].happened)
        thoughts = sum(event[0] == "thought" for event in CASES[name].happened)
        assert name == "marks" or texts[name].count("<think>\n") == thoughts, "no thought that was not there"
    [*_, (_, answer)] = dict(zip(names, in_thinking, strict=False))["plain"]
    assert answer.startswith("<think>\n\n</think>\n\n"), "what docs/export.md says of qwen3"
    [_, (learned, turn), *_] = dict(zip(names, in_llama, strict=False))["text_beside_calls"]
    assert learned
    assert turn == 'Let me look.\n{"name": "weather", "parameters": {"city": "Oslo", "days": 2}}<|eot_id|>'


def test_the_docs_show_the_entry_of_the_card():
    assert ENTRY in (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
