"""What LLaMA-Factory trains on: its loader, converter and templates on a folder with dataset_info.json.

Run by test_llama_factory.py with the folder and the templates. Prints each record as pieces of text, each with whether
it is trained on.
"""

import json
import sys
import types

import transformers
from bytes_tokenizer import tokenizer, trained

sys.modules["torchaudio"] = types.ModuleType("torchaudio")  # for sound only; there is no build of it for this torch

from llamafactory.data import get_dataset, get_template_and_fix_tokenizer  # noqa: E402
from llamafactory.hparams import DataArguments, ModelArguments  # noqa: E402


def read(folder, template):
    words = tokenizer()
    data = DataArguments(
        template=template, dataset="rollouts", dataset_dir=folder, cutoff_len=10**6, overwrite_cache=True
    )
    training = transformers.Seq2SeqTrainingArguments(output_dir=f"{folder}/out", use_cpu=True, report_to=[])
    model = ModelArguments(model_name_or_path="none", cache_dir=f"{folder}/cache")
    rows = get_dataset(get_template_and_fix_tokenizer(words, data), model, data, training, "sft", words)
    return [trained(words, row["input_ids"], row["labels"]) for row in rows["train_dataset"]]


def main():
    folder, *templates = sys.argv[1:]
    result = {template: read(folder, template) for template in templates}
    with open(f"{folder}/result.json", "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
