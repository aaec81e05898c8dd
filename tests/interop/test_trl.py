"""TRL's trainers prepare our exports: what they would train on is what the model did.

No hub is asked for anything: the tokenizer and the models are made here; the chat templates are those in TRL.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interop import bytes_tokenizer, qwen_text
from tests.interop.corpus import CASES, Case, Event, chat_events, told, write
from tests.interop.hugging_face import loaded, stay_offline
from tests.interop.law import exported, hold
from velodrome.exchange.api import export
from velodrome.responses_api_models.conversion import nested

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stay_offline(monkeypatch, tmp_path)


def template(name: str) -> str:
    import trl

    return (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


def tokenizer() -> Any:
    """Every byte is a token; with Qwen3's template."""
    return bytes_tokenizer.tokenizer("<|im_start|>", template=template("qwen3"))


def model(words: Any) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    heads = {"num_key_value_heads": 2, "head_dim": 8}
    ids = {"pad_token_id": words.pad_token_id, "eos_token_id": words.eos_token_id, "bos_token_id": None}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=len(words), max_position_embeddings=8192, **small, **heads, **ids))


def settings(folder: Path, **more: Any) -> Json:
    """Of a trainer: one step, on the CPU, and nobody is told."""
    return {
        "output_dir": str(folder / "trained"),
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        **more,
    }


def trainer(form: str, folder: Path, path: Path) -> Any:
    """TRL's trainer for `sft` or `dpo`, with the file as its data."""
    import trl

    words = tokenizer()
    if form == "sft":
        args = trl.SFTConfig(**settings(folder, max_length=None, assistant_only_loss=True))
        return trl.SFTTrainer(model=model(words), args=args, train_dataset=loaded(path), processing_class=words)
    return trl.DPOTrainer(
        model=model(words),
        ref_model=model(words),
        args=trl.DPOConfig(**settings(folder, max_length=None)),
        train_dataset=loaded(path),
        processing_class=words,
    )


def test_sft_trains_on_what_the_model_did(tmp_path: Path):
    path, names, unfit = exported("sft", tmp_path, "sft.jsonl")
    sft = trainer("sft", tmp_path, path)
    decode, seen = sft.processing_class.decode, {}
    for name, row in zip(names, sft.train_dataset, strict=True):
        text = decode(row["input_ids"])
        seen[name] = qwen_text.events(text)
        assert qwen_text.tools(text) == [nested(tool) for tool in CASES[name].tools], name
        learned = [token for token, label in zip(row["input_ids"], row["labels"], strict=True) if label != -100]
        turns = decode(learned).removesuffix("\n").removesuffix("<|im_end|>").split("<|im_end|>\n")
        expected = qwen_text.held(CASES[name])
        if expected and name not in ("tokens", "spaces", "earlier_calls"):  # whose earlier turns are the model's, too
            assert [event for turn in turns for event in qwen_text.turn(turn)] == qwen_text.own(expected), name
    hold("sft", seen, unfit, qwen_text.held)
    assert sft.train().training_loss > 0


def test_dpo_sets_what_the_model_did_against_the_worse_answer(tmp_path: Path):
    path, names, unfit = exported("dpo", tmp_path, "dpo.jsonl")
    dpo = trainer("dpo", tmp_path, path)
    decode, seen = dpo.processing_class.decode, {}
    for name, row in zip(names, dpo.train_dataset, strict=True):
        prompt = decode(row["prompt_ids"])
        seen[name] = qwen_text.events(prompt + decode(row["chosen_ids"]))
        assert qwen_text.tools(prompt) == [nested(tool) for tool in CASES[name].tools], name
        worse = qwen_text.events(prompt + decode(row["rejected_ids"]))
        assert worse == qwen_text.without_ids([*CASES[name].prompt, *CASES[name].worse]), name
    hold("dpo", seen, unfit, qwen_text.held)
    assert dpo.train().training_loss > 0


@pytest.mark.parametrize("form", ["sft", "dpo"])
def test_decimals_reach_the_trainers_from_a_parquet_file(tmp_path: Path, form: str):
    """Which JSON lines cannot keep: `datasets` decodes them twice, and a number such as 0.3 is another one then."""
    case, path = CASES["decimal"], tmp_path / f"{form}.parquet"
    export(form, [write(tmp_path, [case.name])], path)
    prepared = trainer(form, tmp_path, path)
    [row] = prepared.train_dataset
    ids = row["input_ids"] if form == "sft" else row["prompt_ids"] + row["chosen_ids"]
    assert qwen_text.events(prepared.processing_class.decode(ids)) == qwen_text.without_ids(case.happened)


def as_system(case: Case) -> list[Event]:
    return [told("system", event[2]) if event[:2] == ("told", "developer") else event for event in case.happened]


def test_grpo_generates_from_the_prompts_and_gives_our_columns_to_the_reward_function(tmp_path: Path):
    from trl import GRPOConfig, GRPOTrainer

    words = tokenizer()
    path, names, unfit = exported("grpo", tmp_path, "grpo.jsonl")
    given: dict[str, Json] = {}

    def reward(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
        for place, task in enumerate(columns["task"]):
            row = {name: column[place] for name, column in columns.items() if isinstance(column, list)}
            given[task] = {**row, "prompts": prompts[place], "completions": completions[place]}
        return [float(len(completion[0]["content"])) for completion in completions]

    size = {"per_device_train_batch_size": 2 * len(names), "num_generations": 2, "max_completion_length": 2}
    trainer = GRPOTrainer(
        model=model(words),
        reward_funcs=reward,
        args=GRPOConfig(**settings(tmp_path, **size)),
        train_dataset=loaded(path),
        processing_class=words,
    )
    trainer.train()
    assert sorted(given) == sorted(names)
    seen = {}
    for name, row in given.items():
        assert [message["role"] for message in row["completions"]] == ["assistant"]
        assert json.loads(row["tools"] or "[]") == [nested(tool) for tool in CASES[name].tools]
        assert row["expected_answer"] == "42"
        if name in unfit:
            assert (row["rewards"], len(row["answers"])) == ([0.0], 1)
            continue
        better, worse = row["answers"]
        assert (row["rewards"], row["keys"]) == ([1.0, 0.0], [f"{name}/0", f"{name}/1"])
        assert chat_events(worse) == CASES[name].worse
        seen[name] = chat_events([*row["prompts"], *better])
    assert given["truncated"]["statuses"] == ["incomplete", "completed"]
    assert given["tokens"]["turns"][0] == [
        {name: CASES["tokens"].output[0][name] for name in given["tokens"]["turns"][0][0]}
    ]
    hold("grpo", seen, unfit, as_system)
