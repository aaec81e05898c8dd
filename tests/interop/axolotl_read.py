"""What axolotl trains on: its loader and its `chat_template` strategy with a template of its own.

Run by test_axolotl.py with a file that has the entry of `datasets`, the template and the file to write to. Each record
is written as pieces of text, each with whether it is trained on.
"""

import json
import sys
from pathlib import Path

from axolotl.utils.chat_templates import get_chat_template
from axolotl.utils.data.sft import _load_and_process_single_dataset
from axolotl.utils.dict import DictDefault
from bytes_tokenizer import tokenizer, trained


def main():
    entry, template, to = sys.argv[1:]
    words = tokenizer("<|im_start|>", template=get_chat_template(template))
    config = {"sequence_len": 10**6, "chat_template": template, "dataset_num_proc": 1, "train_on_inputs": False}
    data = DictDefault(json.loads(Path(entry).read_text()))
    rows, _ = _load_and_process_single_dataset(data, DictDefault(config), words, "train", 0)
    read = [trained(words, row["input_ids"], row["labels"]) for row in rows]
    Path(to).write_text(json.dumps(read))


if __name__ == "__main__":
    main()
