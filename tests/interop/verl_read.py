"""What verl makes of a Parquet file: its data set, its prompts as tokens, its images, its reward. Run by test_verl.py.

Reads a JSON object of what to do from the file that is the first argument, and prints one of what came of it.
"""

import asyncio
import base64
import json
import sys
import types
from pathlib import Path

from bytes_tokenizer import tokenizer


def data_set(path, words):
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    config = {"max_prompt_length": 10**6, "filter_overlong_prompts_workers": 1, "cache_dir": str(Path(path).parent)}
    return RLHFDataset(path, words, OmegaConf.create(config))


def prompts(path, templates, cases):
    """Each row as verl hands it to an agent loop, and its prompt in each template, beside the same of `cases`."""
    words = tokenizer(template="{{ messages | tojson }}")
    rows = data_set(path, words)
    read = []
    for at in range(len(rows)):
        row = rows[at]
        kept = {name: row[name] for name in ("data_source", "agent_name", "raw_prompt", "reward_model", "extra_info")}
        case = cases[row["extra_info"]["task"]]
        kept["rendered"] = {}
        for name, template in templates.items():
            words.chat_template = Path(template).read_text()
            kept["rendered"][name] = [
                _rendered(words, given)
                for given in (
                    {"messages": row["raw_prompt"], "tools": json.loads(row["extra_info"]["tools"] or "null")},
                    {"messages": case["messages"], "tools": case["tools"] or None},
                )
            ]
        read.append(kept)
    return read


def _rendered(words, given):
    from verl.utils.tokenizer.continuous_token import ContinuousTokenBuilder

    try:
        return words.decode(ContinuousTokenBuilder(words).build_initial_tokens(**given))
    except Exception as error:  # noqa: BLE001 - whatever a template raises
        return f"{type(error).__name__}: {error}"


def images(messages):
    """The size and the colour of each image that verl's model is shown."""
    stub = types.ModuleType("torchvision")  # only videos use it; there is no build of it for this torch
    stub.io = stub.transforms = types.SimpleNamespace()
    sys.modules.update({"torchvision": stub, "torchvision.transforms": types.ModuleType("torchvision.transforms")})
    sys.modules["torchvision.transforms"].InterpolationMode = None
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    shown, _ = asyncio.run(RLHFDataset.process_vision_info(messages, 14, OmegaConf.create({})))
    return [image.getpixel((0, 0)) for image in shown]


def rewards(path, function, url, answers):
    """The reward that verl's reward manager gives each answer to the first task."""
    import numpy
    import torch
    from hydra import compose, initialize_config_module
    from tensordict import TensorDict
    from verl import DataProto
    from verl.trainer.ppo.reward import load_reward_manager

    overrides = [
        f"reward.custom_reward_function.path={function}",
        f"+reward.custom_reward_function.reward_kwargs.url={url}",
    ]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    words = tokenizer(template="{{ messages | tojson }}")
    row = data_set(path, words)[0]

    async def score(answer):
        manager = load_reward_manager(config, words)
        ids = torch.tensor([words.encode(answer)])
        batch = TensorDict({"responses": ids, "attention_mask": torch.ones_like(ids)}, batch_size=[1])
        other = {name: numpy.array([row[name]], dtype=object) for name in ("data_source", "reward_model", "extra_info")}
        return (await manager.run_single(DataProto(batch=batch, non_tensor_batch=other)))["reward_score"]

    return [asyncio.run(score(answer)) for answer in answers]


def main():
    order = json.loads(Path(sys.argv[1]).read_text())
    steps = {"prompts": prompts, "images": images, "rewards": rewards}
    result = {name: steps[name](**given) for name, given in order.items()}
    print("RESULT", base64.b64encode(json.dumps(result).encode()).decode())


if __name__ == "__main__":
    main()
