"""Runs with verifiers, beside `shop_taskset.py`: evaluates it as `vf-eval` does; prints each question's reward.

verifiers_shop.py MODEL_URL
"""

import asyncio
import json
import sys

from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig


def main():
    config = EvalConfig.model_validate(
        {
            "model": "policy_model",
            "push": False,
            "rich": None,
            "output_dir": "out",
            "run": {"name": "run"},
            "client": {"base_url": sys.argv[1], "api_key_var": "NO_KEY"},
            "env": {
                "taskset": {"id": "shop_taskset"},
                "agent": {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}},
            },
        }
    )
    episodes = asyncio.run(run_eval(config))
    print(json.dumps({each.task.data.prompt: each.traces[0].reward for each in episodes}))


if __name__ == "__main__":
    main()
