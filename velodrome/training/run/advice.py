"""What would make a run faster, from its own times and settings. What cannot help here is not suggested."""

from __future__ import annotations

from velodrome.timing.report import counted
from velodrome.training.envs.extractor_hub import hub_rules
from velodrome.training.run.time_account import TimeAccount
from velodrome.training.settings import LEAST_HIDDEN, MOST_ENVS, RunSettings
from velodrome.training.timed import BACKWARD, ENVIRONMENT, FETCH, FORWARD, KERNELS, OPTIMIZER, STORE, STUDENT, TEACHER

EXPECTED_CPU_SPS = 150.0  # the lower end of the CPU line in the seed's "Expected Performance"
_LARGE = 0.2


def advice(account: TimeAccount, settings: RunSettings, agents: int, device: str) -> list[str]:
    """Suggestions, the largest share of time first; empty if nothing stands out."""
    times = account.whole
    total = times.sum_s("rollout") + times.sum_s("update")
    if not total:
        return []
    lines: list[tuple[float, str]] = []
    for path, (part, ways) in _remedies(account, settings, agents, device).items():
        share = times.sum_s(path) / total
        if share >= _LARGE and ways:
            lines.append((share, f"{share:.0%} of the time is {part}: {', or '.join(ways)}"))
    more = account.apart.get("evaluation", 0.0) / account.trained_s
    if more > _LARGE:
        long = f"{more:.0%} on top of" if more <= 1 else f"{more:,.1f} times as long as"
        lines.append((more, f"evaluation takes {long} training: {_evaluate_less(account, settings)}"))
    slow = [name for name in account.phases if device == "cpu" and account.sps(name) < EXPECTED_CPU_SPS / 2]
    if slow:
        least = f"less than half of the {EXPECTED_CPU_SPS:.0f} steps/s expected of a CPU"
        lines.append((2.0, f"{', '.join(slow)}: {least}; check for other load on the machine"))
    return [words for _, words in sorted(lines, reverse=True)]


def _evaluate_less(account: TimeAccount, settings: RunSettings) -> str:
    evaluator = settings.evaluator
    steps = sum(counts["agent_steps"] for counts in account.phases.values())
    if steps < evaluator.epoch_interval * settings.trainer.batch_size:  # only the one at the end
        fewer = f"evaluator.episodes={evaluator.episodes // 2} or " if evaluator.episodes > 1 else ""
        return f"{fewer}evaluator.evaluate_local=False"
    return f"evaluator.epoch_interval={2 * evaluator.epoch_interval}"


def _remedies(
    account: TimeAccount, settings: RunSettings, agents: int, device: str
) -> dict[str, tuple[str, list[str]]]:
    """For each part what it is, and what would make it smaller."""
    env, trainer, ppo = settings.env, settings.trainer, settings.ppo
    own = ":" not in env.name  # others are stepped one by one
    twice = f"env.num_envs={2 * env.num_envs} with trainer.batch_size={2 * trainer.batch_size}"
    shared = [f"more environments share its fixed cost ({twice})"] if 2 * env.num_envs <= MOST_ENVS else []
    copies = [f"more environments make fewer, larger copies ({twice})"] if shared else []
    half = ["trainer.mixed_precision=True"] if device == "cuda" and not trainer.mixed_precision else []
    larger = min(2 * trainer.minibatch_size, trainer.batch_size)
    fewer = [f"a larger minibatch (trainer.minibatch_size={larger})"] if larger > trainer.minibatch_size else []
    fewer += ["fewer ppo.update_epochs"] if "ppo" in account.phases and ppo.update_epochs > 1 else []
    narrow = ["a narrower policy.hidden"] if settings.policy.hidden > LEAST_HIDDEN else []
    taught = ["fewer supervised.steps"]
    taught += ["fewer supervised.kickstart_steps"] if settings.supervised.kickstart_coef else []
    smaller = ["a smaller map"] if own and env.name != f"extractor_hub_{hub_rules.MIN_SIZE}" else []
    return {
        f"rollout/{TEACHER}/{FETCH}": ("fetching observations from the device", taught),
        f"rollout/{TEACHER}/{KERNELS}": ("the compiled teacher", [*taught, *smaller]),
        f"rollout/{STORE}": ("storing steps", copies),
        f"rollout/{STUDENT}": (f"the student's forward pass on {counted(agents, 'agent')} at once", [*shared, *half]),
        f"rollout/{ENVIRONMENT}": ("the environment", shared if own else []),
        f"update/{FORWARD}": ("the forward pass of updates", [*fewer, *half, *narrow]),
        f"update/{BACKWARD}": ("the backward pass", [*fewer, *half, *narrow]),
        f"update/{OPTIMIZER}": ("the optimizer", [*fewer, *narrow]),
    }
