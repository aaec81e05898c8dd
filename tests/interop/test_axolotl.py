"""axolotl trains on what the model did, and on nothing else: its loader and its `chat_template` on our file."""

from __future__ import annotations

import json
from pathlib import Path

import qwen_text
import yaml
from corpus import CASES, with_marks
from law import KEPT, exported, hold, record, verdicts
from programs import ROOT, run

from velodrome.exchange.export.axolotl import FORMAT
from velodrome.responses_api_models.turns import nested

HERE = Path(__file__).parent
CONFIG = FORMAT.usage.split("```yaml\n")[1].split("```")[0]  # as the card shows it


def read(folder: Path, file: Path, template: str) -> list[list[tuple[bool, str]]]:
    """Each record in pieces that are trained on or not."""
    [entry] = yaml.safe_load(CONFIG)["datasets"]
    (folder / "entry.json").write_text(json.dumps({**entry, "path": str(file)}))
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf"), "OMP_NUM_THREADS": "1"}
    run("axolotl", HERE / "axolotl_read.py", folder / "entry.json", template, folder / "result.json", **offline)
    pieces: list[list[tuple[bool, str]]] = json.loads((folder / "result.json").read_text())
    return pieces


def test_axolotl_trains_on_what_the_model_did(tmp_path: Path):
    path, names, unfit = exported("axolotl", tmp_path, "axolotl.jsonl")
    with path.open("ab") as file:
        file.write(record("axolotl", with_marks()))
    *in_qwen, with_mark = read(tmp_path, path, "qwen3")
    assert qwen_text.learned(with_mark) == qwen_text.own(with_marks().made)
    rows = dict(zip(names, in_qwen, strict=True))
    texts = {name: "".join(piece for _, piece in pieces) for name, pieces in rows.items()}
    hold("axolotl: axolotl, Qwen3", verdicts({n: qwen_text.events(t) for n, t in texts.items()}, unfit, qwen_text.held))
    for name, pieces in rows.items():
        assert qwen_text.tools(texts[name]) == [nested(tool) for tool in CASES[name].tools]
        if qwen_text.held(CASES[name])[1] in (KEPT, "no ids"):
            assert qwen_text.learned(pieces) == qwen_text.own(CASES[name].made)


def test_the_docs_show_the_config_of_the_card():
    assert CONFIG in (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
