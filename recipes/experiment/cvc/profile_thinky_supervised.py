"""Where the time of `cvc.thinky_supervised_to_ppo` goes: 10,000 steps, the timing tree every 10 rollouts, a trace.

Run it as it is (`python recipes/experiment/cvc/profile_thinky_supervised.py key=value…`), or as a recipe by its path.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[3])  # the tree this file stands in, whatever is installed

from velodrome.cli.main import main
from velodrome.training.recipes.cvc.thinky_supervised_to_ppo import thinky_supervised_to_ppo
from velodrome.training.settings import RunSettings


def profile_thinky_supervised(
    base_missions: str = "extractor_hub_30", supervised_steps: int = 5_120, num_envs: int = 16, agents: int = 4
) -> RunSettings:
    """Ten rollouts with the teacher, ten with PPO, the teacher's kickstart in the first half, and their times."""
    recipe = thinky_supervised_to_ppo(base_missions, supervised_steps, num_envs, agents)
    steps = {"wait_steps": 2, "warmup_steps": 2, "active_steps": 4}
    profiler = recipe.trainer.profiler.model_copy(update={"enabled": True, "record_shapes": True, **steps})
    return recipe.model_copy(
        update={
            "run": "profile_thinky",
            "supervised": recipe.supervised.model_copy(update={"profiled": True, "kickstart_steps": 2_500}),
            "trainer": recipe.trainer.model_copy(update={"total_timesteps": 10_000, "profiler": profiler}),
            "evaluator": recipe.evaluator.model_copy(update={"evaluate_local": False}),
        }
    )


if __name__ == "__main__":
    sys.exit(main(["train", __file__, *sys.argv[1:]]))
