"""Exports are read by OpenAI's own types, pandas and pyarrow. Data sets and trainers read them in tests/interop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.made_runs import make_run
from velodrome.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("collected") / "rollouts.jsonl", tasks=12, failed=0)


def exported(rollouts: Path, folder: Path, form: str, *options: str) -> Path:
    """What `velo export` writes for a user."""
    to = folder / form
    assert main(["export", form, str(rollouts), "--to", str(to), *options]) == 0
    return to


def records(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_openais_own_types_take_messages_tools_and_responses(rollouts: Path, tmp_path: Path):
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
    from openai.types.responses import Response
    from openai.types.responses.response_input_param import FunctionCallOutput
    from pydantic import TypeAdapter

    messages, tools = TypeAdapter(list[ChatCompletionMessageParam]), TypeAdapter(list[ChatCompletionToolParam])
    sft = records(exported(rollouts, tmp_path, "sft", "--reasoning", "drop", "--arguments", "text") / "train.jsonl")
    for record in sft:
        assert record.keys() <= {"messages", "tools"}
        messages.validate_python(record["messages"])
        tools.validate_python(record.get("tools", []))
    assert sft
    assert all("tools" in record for record in sft)
    results = TypeAdapter(FunctionCallOutput)  # which NeMo Gym has among the items of the output
    for record in records(exported(rollouts, tmp_path, "nemo_gym") / "train.jsonl"):
        made = record["response"]["output"]
        own = [item for item in made if item["type"] != "function_call_output"]
        for item in made:
            assert item in own or results.validate_python(item)
        assert len(Response.model_validate({**record["response"], "output": own}).output) == len(own)


def test_pandas_reads_the_flat_table(rollouts: Path, tmp_path: Path):
    import pandas

    table = pandas.read_parquet(exported(rollouts, tmp_path, "parquet") / "train.parquet")
    assert table["reward"].tolist() == [row["reward"] for row in records(rollouts)]
    roles = [message["role"] for message in orjson.loads(table["messages"][1])]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
