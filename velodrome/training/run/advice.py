"""What would make a run faster, from its own times: the largest parts, each with the settings that make it smaller."""

from __future__ import annotations

from velodrome.training.envs.env_names import kind_of
from velodrome.training.run.time_account import TimeAccount
from velodrome.training.settings import RunSettings
from velodrome.training.timed import BACKWARD, ENVIRONMENT, FORWARD, OPTIMIZER, STORE, STUDENT, TEACHER

EXPECTED_CPU_SPS = 150.0  # the lower end of the CPU line in the seed's "Expected Performance"
_LARGE = 0.2
_MORE = "more environments share its fixed cost (env.num_envs, and trainer.batch_size with it)"
_FEWER = "a larger trainer.minibatch_size, fewer ppo.update_epochs or a narrower policy.hidden"
_PARTS = {
    f"rollout/{TEACHER}": ("the compiled teacher", "fewer supervised.steps or supervised.kickstart_steps"),
    f"rollout/{STUDENT}": ("the student's forward pass", _MORE),
    f"rollout/{STORE}": ("storing steps", _MORE),
    f"update/{FORWARD}": ("the forward pass of updates", _FEWER),
    f"update/{BACKWARD}": ("the backward pass", _FEWER),
    f"update/{OPTIMIZER}": ("the optimizer", _FEWER),
}


def advice(account: TimeAccount, settings: RunSettings, device: str) -> list[str]:
    """Suggestions, the largest share of time first; empty if nothing stands out."""
    times = account.whole
    if not times:
        return []
    total = times["rollout"].sum + times["update"].sum
    alone = "workers" not in kind_of(settings.env.name).unused  # environments that are stepped one by one
    stepped = ("the environment", "env.workers, if a step takes long" if alone else _MORE)
    shares = {path: times[path].sum / total for path in (*_PARTS, f"rollout/{ENVIRONMENT}")}
    lines = []
    for path in sorted(shares, key=lambda path: -shares[path]):
        part, way = _PARTS.get(path, stepped)
        if shares[path] >= _LARGE:
            lines.append(f"{shares[path]:.0%} of the time is {part}: {way}")
    more = account.apart.get("evaluation", 0.0) / account.trained_s
    if more > _LARGE:
        lines.insert(0, f"evaluation takes {more:.0%} on top: a larger evaluator.epoch_interval, fewer episodes")
    slow = [name for name in account.phases if device == "cpu" and account.sps(name) < EXPECTED_CPU_SPS / 2]
    if slow:
        least = f"less than half of the {EXPECTED_CPU_SPS:.0f} steps/s expected of a CPU"
        lines.insert(0, f"{', '.join(slow)}: {least}; check for other load on the machine")
    return lines
