"""Exports are read by those they are made for: datasets, OpenAI's own types, pyarrow as verl uses it.

No hub is asked for anything: the tokenizer and the models are made here, and the packages are told to stay offline.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from bytes_tokenizer import tokenizer
from hugging_face import loaded, stay_offline

from velodrome.cli.main import main
from velodrome.records.rollout import encode

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

Json = dict[str, Any]

# A chat template with tools, of the kind open models have: arguments may be text or an object.
TEMPLATE = (
    "{% if tools %}<|tools|>{{ tools | tojson }}<|end|>{% endif %}"
    "{% for message in messages %}<|{{ message.role }}|>"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<call>{{ call.function.name }} "
    "{{ call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}</call>"
    "{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MARKS = ["<|tools|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]


def tool(name: str, **properties: Json) -> Json:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "name": name, "description": f"Does {name}", "parameters": parameters, "strict": True}


TOOLS = {
    "sum": tool("calculator", expression={"type": "string"}),
    "weather": tool("weather", city={"type": "string", "enum": ["Oslo", "Rome"]}, days={"type": "integer"}),
}
ARGUMENTS = {"sum": '{"expression":"1+1"}', "weather": '{"city":"Oslo","days":2}'}


def rollout(kind: str, number: int, repeat: int, reward: float) -> Json:
    """Two kinds of tasks with tools of their own, and a third without any."""
    task = f"{kind}{number}"
    answer = f"{'right' if reward >= 1 else 'wrong'} {task}.{repeat}"
    output: list[Json] = [{"role": "assistant", "content": answer}]
    params: Json = {"input": [{"role": "user", "content": f"What about {task}?"}], "instructions": "Be brief."}
    if kind in TOOLS:
        params["tools"] = [TOOLS[kind]]
        call = {"id": "c1", "name": TOOLS[kind]["name"], "arguments": ARGUMENTS[kind]}
        result = {"role": "tool", "tool_call_id": "c1", "content": "2", "name": TOOLS[kind]["name"]}
        output = [{"role": "assistant", "reasoning_content": "Let me see.", "tool_calls": [call]}, result, *output]
    return {
        "responses_create_params": params,
        "output": output,
        "response": {"id": f"resp_{task}_{repeat}", "model": "m", "status": "completed", "content": answer},
        "usage": {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25},
        "id": task,
        "expected_answer": str(number),
        "reward": reward,
        "meta": {"key": f"{task}/{repeat}", "task_index": number, "rollout_index": repeat, "agent": "a", "schema": 1},
    }


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("collected") / "rollouts.jsonl"
    kinds = ("talk", *TOOLS)
    rows = [
        rollout(kind, number, repeat, float(repeat % 2)) for repeat in range(4) for number in range(4) for kind in kinds
    ]
    path.write_bytes(b"".join(map(encode, rows)))
    return path


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stay_offline(monkeypatch, tmp_path)


def exported(rollouts: Path, folder: Path, form: str, *options: str) -> Path:
    """What `velo export` writes for a user."""
    to = folder / form
    assert main(["export", form, str(rollouts), "--to", str(to), *options]) == 0
    return to


def records(path: Path) -> list[Json]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("form", ["sft", "dpo", "grpo", "nemo_gym", "sharegpt"])
def test_datasets_loads_every_record_of_a_jsonl_export_as_it_was_written(rollouts: Path, tmp_path: Path, form: str):
    """Tools and arguments of different shapes stay apart: no field of one appears in the other."""
    path = exported(rollouts, tmp_path, form, "--shuffle") / "train.jsonl"
    written = records(path)
    assert len(written) >= 12
    result = [pruned(row) for row in loaded(path)]
    assert result == [pruned(row) for row in written]


def pruned(value: Any) -> Any:
    """Without fields that are null, as `datasets` gives those that only other rows have."""
    if isinstance(value, dict):
        return {name: pruned(each) for name, each in value.items() if each is not None}
    return [pruned(each) for each in value] if isinstance(value, list) else value


def test_datasets_finds_the_splits_of_a_folder(rollouts: Path, tmp_path: Path):
    import datasets

    folder = exported(rollouts, tmp_path, "sft", "--split", "train=0.75,test=0.25")
    result = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert {name: len(rows) for name, rows in result.items()} == {"train": 18, "test": 6}


def test_openais_own_types_take_sft_messages_and_tools(rollouts: Path, tmp_path: Path):
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
    from pydantic import TypeAdapter

    messages, tools = TypeAdapter(list[ChatCompletionMessageParam]), TypeAdapter(list[ChatCompletionToolParam])
    result = records(exported(rollouts, tmp_path, "sft", "--reasoning", "drop", "--arguments", "text") / "train.jsonl")
    for record in result:
        assert record.keys() <= {"messages", "tools"}
        messages.validate_python(record["messages"])
        tools.validate_python(record.get("tools", []))
    assert sum("tools" in record for record in result) == 16


def test_openais_own_types_take_the_responses_of_nemo_gym(rollouts: Path, tmp_path: Path):
    """NeMo Gym's types are OpenAI's, with tool results among the items of the output."""
    from openai.types.responses import Response
    from openai.types.responses.response_input_param import FunctionCallOutput
    from pydantic import TypeAdapter

    results = TypeAdapter(FunctionCallOutput)
    for record in records(exported(rollouts, tmp_path, "nemo_gym") / "train.jsonl"):
        made = record["response"]["output"]
        for item in made:
            if item["type"] == "function_call_output":
                results.validate_python(item)
        own = [item for item in made if item["type"] != "function_call_output"]
        assert len(Response.model_validate({**record["response"], "output": own}).output) == len(own)


VERL = {
    "data_source": "string",
    "agent_name": "string",
    "prompt": "list",
    "ability": "string",
    "reward_model": "struct",
    "extra_info": "struct",
}


def test_verl_reads_its_columns_as_its_own_data_set_does(rollouts: Path, tmp_path: Path):
    """As verl's RLHFDataset: load the Parquet file, render the prompt, look into extra_info."""
    import pyarrow.parquet

    folder = exported(
        rollouts, tmp_path, "verl", "--split", "train=0.75,test=0.25", "--data-source", "mine", "--where", "pass_rate<1"
    )
    schema = pyarrow.parquet.read_schema(folder / "train.parquet")
    assert {name: str(schema.field(name).type).split("<")[0] for name in schema.names} == VERL
    assert str(schema.field("prompt").type.value_type) == "struct<role: string, content: string>"
    assert str(schema.field("reward_model").type) == "struct<style: string, ground_truth: string>"
    words = tokenizer(*MARKS, eos="<|end|>", template=TEMPLATE)
    tasks: dict[str, set[str]] = {}
    for split in ("train", "test"):
        rows = loaded(folder / f"{split}.parquet")
        tasks[split] = {row["extra_info"]["task"] for row in rows}
        assert [row["extra_info"]["index"] for row in rows] == list(range(len(rows)))
        for row in rows:
            text = words.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
            task = row["extra_info"]["task"]
            assert text == f"<|system|>Be brief.<|end|><|user|>What about {task}?<|end|><|assistant|>"
            assert row["reward_model"] == {"style": "rule", "ground_truth": task[-1]}
            assert (row["data_source"], row["extra_info"]["split"], row["extra_info"]["pass_rate"]) == (
                "mine",
                split,
                0.5,
            )
    assert tasks["train"] & tasks["test"] == set()
    assert (len(tasks["train"]), len(tasks["test"])) == (9, 3)


def test_pandas_reads_the_flat_table(rollouts: Path, tmp_path: Path):
    import pandas

    table = pandas.read_parquet(exported(rollouts, tmp_path, "parquet") / "train.parquet")
    assert table.groupby("task")["reward"].mean().eq(0.5).all()
    assert len(table) == 48
    assert [message["role"] for message in orjson.loads(table["messages"][1])] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


@pytest.mark.parametrize("kind", ["saved", "files"])
def test_a_local_data_set_becomes_tasks(tmp_path: Path, kind: str):
    """`velo data prepare` with a folder that `datasets` saved, and with one that it loads files from."""
    import datasets

    rows = datasets.Dataset.from_dict({"question": ["1 + 1?", "2 + 2?"], "answer": [2, 4]})
    folder = tmp_path / "set"
    if kind == "saved":
        datasets.DatasetDict({"train": rows, "test": rows.select([0])}).save_to_disk(str(folder))
    else:
        folder.mkdir()
        rows.to_parquet(str(folder / "train.parquet"))
        rows.select([0]).to_parquet(str(folder / "test.parquet"))
    for source, count in ((str(folder), 2), (f"hf:{folder}:test", 1)):
        to = tmp_path / f"{count}.jsonl"
        assert main(["data", "prepare", source, "--to", str(to), "--prompt", "{question}", "--answer", "answer"]) == 0
        assert records(to)[0] == {
            "responses_create_params": {"input": [{"role": "user", "content": "1 + 1?"}]},
            "expected_answer": "2",
        }
        assert len(records(to)) == count


def test_a_data_set_nobody_has_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    to = str(tmp_path / "tasks.jsonl")
    assert main(["data", "prepare", "hf:nobody/nothing:train", "--to", to, "--prompt", "{question}"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("velo: nobody/nothing:train: cannot be loaded (is its hub reachable?): ")
    assert err.count("\n") == 1
