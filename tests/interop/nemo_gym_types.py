"""Runs with nemo-gym: its types on the files that are named, what it sees in them, and what it makes of their numbers.

    nemo_gym_types.py RECORDS RESPONSES

RECORDS is a file of rollouts as `velo export nemo_gym` writes them, RESPONSES one of Responses that our servers gave.
Prints JSON: for each record what their types hold of it, or why they refuse it; the same for each Response; and their
metrics over the records, for comparison with ours. Then `gym eval profile` profiles the records.
"""

import json
import sys

from nemo_gym.base_resources_server import BaseVerifyResponse
from nemo_gym.cli.main import main as gym
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.reward_profile import compute_aggregate_metrics
from pydantic import ValidationError


def rows(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines]


def held(kind, row):
    try:
        return kind.model_validate(row).model_dump(mode="json")
    except ValidationError as error:
        return {"refused": str(error)}


def main():
    records, responses = map(rows, sys.argv[1:])
    stripped = [
        {name: value for name, value in row.items() if name not in ("response", "responses_create_params")}
        | {"response": {"usage": row["response"]["usage"]}}
        for row in records
    ]
    answer = {
        "records": [held(BaseVerifyResponse, row) for row in records],
        "responses": [held(NeMoGymResponse, row) for row in responses],
        "asked": stripped,
        "metrics": compute_aggregate_metrics(stripped).model_dump(mode="json"),
    }
    print(json.dumps(answer), flush=True)
    files = [f"+{name}_jsonl_fpath={sys.argv[1]}" for name in ("materialized_inputs", "rollouts")]
    sys.argv = ["gym", "eval", "profile", *files, f"hydra.run.dir={sys.argv[1]}.hydra"]
    gym()


if __name__ == "__main__":
    main()
