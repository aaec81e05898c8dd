"""Runs with inspect-ai, beside `shop.py`: evaluates it; prints each question's score.

inspect_shop.py MODEL_URL
"""

import json
import sys

from inspect_ai import eval as evaluate
from inspect_ai.model import get_model
from inspect_ai.scorer import value_to_float
from shop import shop


def main():
    model = get_model("openai-api/local/policy_model", base_url=sys.argv[1], api_key="none")
    quiet = {"display": "none", "log_realtime": False, "score_display": False, "ctl_server": False}
    [log] = evaluate(shop(), model=model, log_dir="logs", **quiet)
    assert log.status == "success", log.error
    number = value_to_float()
    print(json.dumps({each.input: number(each.scores["total"].value) for each in log.samples}))


if __name__ == "__main__":
    main()
