"""The timing tree of the last rollouts as text, in the seed's lines, and what it says should be changed.

Advice is drawn from the numbers above it and from the settings: what cannot help here is not said.
"""

from __future__ import annotations

from velodrome.timing.report import Line, counted, tree
from velodrome.training.envs.extractor_hub import rules
from velodrome.training.parts import (
    BACK,
    BACKWARD,
    ENVIRONMENT,
    FETCH,
    FORWARD,
    KERNELS,
    OPTIMIZER,
    RESHAPE,
    STORE,
    STUDENT,
    TEACHER,
)
from velodrome.training.run.account import IN_TEACHER, OTHER, Account, Spent
from velodrome.training.settings import Settings

WIDTH = 60
NAMES = {
    STUDENT: "Student Forward:",
    TEACHER: "Teacher Total:",
    RESHAPE: "Reshape:",
    FETCH: "GPU->CPU:",
    KERNELS: "Nim Calls:",
    BACK: "Stack+Back:",
    STORE: "Replay Store:",
    ENVIRONMENT: "Environment:",
    OTHER: "Other:",
}
EXPECTED_CPU_SPS = 150.0  # the seed's "Expected Performance", the lower end of its CPU line
_MARKED = 0.25  # a part below this share of a rollout is no bottleneck
_LARGE = 0.2
_MOST_ENVS, _LEAST_HIDDEN = 65_536, 4  # as the settings allow


def timing_table(account: Account, agent_step: int, *, settled: bool, ascii_only: bool = False) -> str:
    """The rollouts since the last table: means, percentiles, the largest part marked."""
    spent = account.recent
    bar = "=" * WIDTH
    title, *parts = tree(
        f"Rollout Timing Profile (agent_step={agent_step})", _lines(spent), ascii_only=ascii_only
    ).splitlines()
    clock = "device settled before a clock stops" if settled else "nothing to settle on this device"
    update = spent.mean_ms("update")
    rollouts = counted(account.rollouts, "rollout")
    said = f"  mean of {rollouts} (p50, p95); update {update:.2f} ms each; {clock}"
    return "\n".join([bar, title, bar, *parts, bar, said])


def _lines(spent: Spent) -> list[Line]:
    total = spent.mean_ms("rollout")
    asked = spent.sum_s(f"rollout/{TEACHER}") > 0
    order = [(STUDENT, 1, f"rollout/{STUDENT}"), (TEACHER, 1, f"rollout/{TEACHER}")]
    order += [(name, 2, f"rollout/{TEACHER}/{name}") for name in IN_TEACHER if asked]
    order += [(name, 1, f"rollout/{name}") for name in (STORE, ENVIRONMENT, OTHER)]
    inner = [each for each in order if each[0] != TEACHER]
    largest = max(inner, key=lambda each: spent.mean_ms(each[2]))[2]
    marked = largest if spent.mean_ms(largest) >= _MARKED * total else None
    lines = [Line("Rollout Total:", 0, total, note=_spread(spent, "rollout"))]
    for name, depth, path in order:
        note = "not asked" if name == TEACHER and not asked else _spread(spent, path)
        lines.append(Line(NAMES[name], depth, spent.mean_ms(path), bottleneck=path == marked, note=note))
    return lines


def _spread(spent: Spent, path: str) -> str:
    found = spent.parts.get(path)
    if found is None or not found.sum:
        return ""
    return f"{found.quantile(0.5) * 1e3:.2f}, {found.quantile(0.95) * 1e3:.2f}"


def advice(account: Account, settings: Settings, agents: int, device: str) -> list[str]:
    """What would make training faster, worst first. Empty if nothing stands out."""
    spent = account.whole
    total = spent.sum_s("rollout") + spent.sum_s("update")
    if not total:
        return []
    found: list[tuple[float, str]] = []
    for path, (part, ways) in _sayings(account, settings, agents, device).items():
        share = spent.sum_s(path) / total
        if share >= _LARGE and ways:
            found.append((share, f"{share:.0%} of the time is {part}: {', or '.join(ways)}"))
    trained_s = sum(each["rollout_s"] + each["update_s"] for each in account.phases.values())
    more = account.apart.get("evaluation", 0.0) / trained_s
    if more > _LARGE:
        found.append((more, f"evaluation takes {more:.0%} on top of training: {_evaluate_less(account, settings)}"))
    slow = [name for name in account.phases if device == "cpu" and account.sps(name) < EXPECTED_CPU_SPS / 2]
    if slow:
        least = f"less than half of the {EXPECTED_CPU_SPS:.0f} steps/s expected of a CPU"
        found.append((2.0, f"{', '.join(slow)}: {least}; look for another load on it"))
    return [words for _, words in sorted(found, reverse=True)]


def _evaluate_less(account: Account, settings: Settings) -> str:
    given = settings.evaluator
    steps = sum(each["agent_steps"] for each in account.phases.values())
    if steps < given.epoch_interval * settings.trainer.batch_size:  # only the one at the end
        fewer = f"evaluator.episodes={given.episodes // 2} or " if given.episodes > 1 else ""
        return f"{fewer}evaluator.evaluate_local=False"
    return f"evaluator.epoch_interval={2 * given.epoch_interval}"


def _sayings(account: Account, settings: Settings, agents: int, device: str) -> dict[str, tuple[str, list[str]]]:
    """What each part is, and what would make it less here and now."""
    env, trainer, ppo = settings.env, settings.trainer, settings.ppo
    own = ":" not in env.name  # others are stepped one by one
    twice = f"env.num_envs={2 * env.num_envs} with trainer.batch_size={2 * trainer.batch_size}"
    shared = [f"more environments share its fixed cost ({twice})"] if 2 * env.num_envs <= _MOST_ENVS else []
    copies = [f"more environments make fewer, larger copies ({twice})"] if shared else []
    half = ["trainer.mixed_precision=True"] if device == "cuda" and not trainer.mixed_precision else []
    larger = min(2 * trainer.minibatch_size, trainer.batch_size)
    fewer = [f"a larger minibatch (trainer.minibatch_size={larger})"] if larger > trainer.minibatch_size else []
    fewer += ["fewer ppo.epochs"] if "ppo" in account.phases and ppo.epochs > 1 else []
    narrow = ["a narrower policy.hidden"] if settings.policy.hidden > _LEAST_HIDDEN else []
    asked = ["fewer supervised.steps"]
    asked += ["fewer supervised.keep_steps"] if settings.supervised.keep_coef and settings.supervised.keep_steps else []
    smaller = ["a smaller map"] if own and env.name != f"extractor_hub_{rules.MIN_SIZE}" else []
    return {
        f"rollout/{TEACHER}/{FETCH}": ("fetching observations from the device", asked),
        f"rollout/{TEACHER}/{KERNELS}": ("the compiled teacher", [*asked, *smaller]),
        f"rollout/{STORE}": ("storing steps", copies),
        f"rollout/{STUDENT}": (f"the student's forward pass on {counted(agents, 'agent')} at once", [*shared, *half]),
        f"rollout/{ENVIRONMENT}": ("the environment", shared if own else []),
        f"update/{FORWARD}": ("the forward pass of updates", [*fewer, *half, *narrow]),
        f"update/{BACKWARD}": ("the backward pass", [*fewer, *half, *narrow]),
        f"update/{OPTIMIZER}": ("the optimizer", [*fewer, *narrow]),
    }
