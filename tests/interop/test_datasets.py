"""`datasets` loads our exports as they were written."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.interop.corpus import CASES, write
from tests.interop.hugging_face import stay_offline
from tests.interop.law import exported
from velodrome.exchange.api import export
from velodrome.exchange.export.chat import Style, Unfit, loadable
from velodrome.exchange.parquet import json_text

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

Json = dict[str, Any]

CHUNK_BYTES = 10 << 20
TABLE = Style(table=True)
FORMS = ("sft", "dpo", "grpo")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stay_offline(monkeypatch, tmp_path)


def loaded(folder: Path, *paths: Path, chunk_bytes: int = CHUNK_BYTES) -> list[Json]:
    """What `datasets` makes of each path: its rows, or why it is refused."""
    import datasets

    results: list[Json] = []
    for number, path in enumerate(paths):
        kind = {".jsonl": "json", ".parquet": "parquet"}.get(path.suffix)
        source: Json = {"path": kind, "data_files": str(path)} if kind else {"path": str(path)}
        if kind != "parquet":
            source["chunksize"] = chunk_bytes
        cache = str(folder / f"cache_{number}")
        try:
            rows = datasets.load_dataset(**source, split="train", cache_dir=cache, keep_in_memory=True)
            results.append({"rows": list(rows)})
        except Exception as error:  # noqa: BLE001 - whatever it is, the file is refused
            results.append({"refused": str(error)})
    return results


def records(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def with_all(columns: set[str], record: Json) -> Json:
    """The record with the columns that only others have, which `datasets` adds, as null."""
    return {**dict.fromkeys(columns), **record}


def test_every_record_is_loaded_as_it_was_written(tmp_path: Path):
    files = [exported(form, tmp_path, f"{form}.jsonl")[0] for form in FORMS]
    folders = [exported(form, tmp_path, form)[0] for form in FORMS]
    for path, result in zip([*files, *folders], loaded(tmp_path, *files, *folders), strict=True):
        written = records(path if path.is_file() else path / "train.jsonl")
        columns = set(result["rows"][0])
        assert result["rows"] == [with_all(columns, record) for record in written], path.name


def test_a_parquet_file_is_loaded_as_it_happened_decimals_included(tmp_path: Path):
    """Every record of the JSON lines, and those with 0.3, which JSON lines cannot keep."""
    rollouts, files = write(tmp_path), [tmp_path / f"{form}.parquet" for form in FORMS]
    results = [export(form, [rollouts], file) for form, file in zip(FORMS, files, strict=True)]
    assert not [why for result in results for why in result.unfit_reasons if "number" in why]
    for form, result in zip(FORMS, loaded(tmp_path, *files), strict=True):
        rows, key = result["rows"], "messages" if form == "sft" else "prompt"
        decimal = [row for row in rows if '"value": 0.3' in json.dumps(row)]
        assert ['{"value": 0.3}' in json.dumps(row) for row in decimal] == [True]
        lines = records(exported(form, tmp_path, f"{form}_lines.jsonl")[0])
        asked = [row[key][0] for row in decimal]
        same = [with_all(set(rows[0]), line) for line in lines if line[key][0] not in asked]
        assert [row for row in rows if row not in decimal] == same, form


def test_a_card_names_the_types_that_the_first_lines_do_not_show(tmp_path: Path):
    """`datasets` takes types from the first chunk, so calls that come later need the card."""
    rows = write(tmp_path, ["plain"]).read_bytes().splitlines(keepends=True)[:1]
    late = write(tmp_path, ["one_call"]).read_bytes()
    (tmp_path / "rollouts.jsonl").write_bytes(b"".join(rows * 300) + late)
    export("sft", [tmp_path / "rollouts.jsonl"], tmp_path / "sft")
    with_card, without = loaded(tmp_path, tmp_path / "sft", tmp_path / "sft/train.jsonl", chunk_bytes=16 << 10)
    written = records(tmp_path / "sft/train.jsonl")
    assert len(written) == 301
    assert with_card["rows"] == [with_all({"tools"}, record) for record in written]
    assert "refused" in without


def test_numbers_that_datasets_changes_are_the_ones_that_are_left_out():
    """By its own type for JSON, on numbers of all sizes."""
    from datasets import Json as JsonType

    kind, draw = JsonType(), random.Random(7)
    numbers: list[float] = [0.1 * tenth for tenth in range(30)] + [0.3, 0.6, 0.7, 3.82, 1e-12, 1e300, 2**63, 2**64 - 1]
    for decimals in range(1, 13):
        numbers += [round(draw.uniform(-1, 1) * 10 ** draw.randint(-3, 9), decimals) for _ in range(300)]
    for style, written, fewest, most in ((Style(), kind.encode_example, 0.2, 0.5), (TABLE, json_text, 0.0, 0.05)):
        left_out = 0
        for number in numbers:
            value = {"value": number}
            try:
                loadable(
                    [{"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": value}}]}], style
                )
            except Unfit:
                left_out += 1
                continue
            assert json.dumps(kind.decode_example(written(value))) == json.dumps(value)
        assert fewest < left_out / len(numbers) < most, "and not more than need be"


def test_arguments_as_text_keeps_images_as_openai_has_them(tmp_path: Path):
    """OpenAI's own types take the records in tests/shown/test_consumers.py."""
    path, names, unfit = exported("sft", tmp_path, "openai.jsonl", arguments="text", reasoning="drop")
    shown = dict(zip(names, records(path), strict=True))["images"]["messages"][0]["content"]
    assert [part.get("image_url", {}).get("url") for part in shown] == [
        part.get("image_url") for part in CASES["images"].input[0]["content"]
    ]
    assert set(unfit) == {"image_result", "max_steps", "ends_with_result", "refusal_beside_text", "truncated"}


@pytest.mark.parametrize("form", ["sft", "verl"])
def test_the_splits_of_a_folder_are_loaded_without_a_word(tmp_path: Path, form: str, caplog: pytest.LogCaptureFixture):
    import datasets

    names = ["plain", "odd", "system", "developer"]
    export(form, [write(tmp_path, names)], tmp_path / form, split="train=0.7,dev-1=0.25,none=0.05")
    result = datasets.load_dataset(str(tmp_path / form), cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in result.items()} == {"train": 3, "dev_1": 1}
    assert [record for record in caplog.records if "card" in record.message] == []
