"""What bounded the throughput of a run, why that is believed, what to change, and what the change would give.

The first rule that applies names the bound; arithmetic predicts. What the file cannot tell is said to be not known.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from velodrome.machine import cores
from velodrome.profiling.attempts import CONNECTION, SETTINGS, SeenLimiter
from velodrome.profiling.config_blocks import UNKNOWN, Blocks, find_blocks
from velodrome.profiling.observed import Observed
from velodrome.profiling.phrases import Advice
from velodrome.profiling.prediction import Prediction
from velodrome.profiling.rules import RULES
from velodrome.profiling.sample import FEWEST, RunSample
from velodrome.profiling.verdict_case import HELPS, LATER, QUEUED, Case, Explanation
from velodrome.timing.figures import counted, figure

Json = dict[str, Any]

SHORTEST_S = 0.5
_DEFAULT_PLACES = {"threads": 32, "judge": 16}
_LOCAL_OWN_S = 0.001  # a model in the collector's process uses CPU that is not the event loop's


def make_verdict(sample: RunSample, seconds: float, config: Json | None = None, whose: str = "") -> Json:
    """The verdict on one run that took so long. `config` is the resolved one; `whose` says what its rate is of."""
    observed = Observed(sample, seconds) if sample.kept and seconds > 0 else None
    if observed is None or observed.kept < FEWEST or not observed.rollouts:
        are = "is" if sample.kept == 1 else "are"
        few = f"{counted(sample.kept, 'rollout')} {are} too few to tell; at least {FEWEST} are needed"
        return _as_json(Explanation("unknown", "not known", [few]), observed)
    if seconds < SHORTEST_S:
        short = f"the run took {seconds:.1g} s: too short to tell"
        return _as_json(Explanation("unknown", "not known", [short]), observed)
    case = _make_case(observed, config)
    return _as_json(next(explanation for rule in RULES if (explanation := rule(case)) is not None), observed, whose)


def _make_case(observed: Observed, config: Json | None) -> Case:
    blocks = find_blocks(config, observed.agent)
    local = blocks.model.implementation == "local_model"
    own_s = min(observed.own_s, _LOCAL_OWN_S) if local else observed.own_s
    return Case(observed, Prediction(observed, _places(observed, blocks, cores()), own_s), config, cores())


def _places(observed: Observed, blocks: Blocks, cores: int) -> dict[str, int]:
    """How many places each limiter has: as its span says, as configured, else as many as were in use during a wait."""
    limiters = {name: SeenLimiter(name, setting, part=name) for name, setting in SETTINGS.items()} | observed.limiters
    places = {}
    for name, limiter in limiters.items():
        block = blocks.model if limiter.part == "model" else blocks.environment
        size = limiter.places or block.number(limiter.setting)
        used = observed.tried_per_s * observed.busy_s.get(name, 0.0)
        if blocks is not UNKNOWN:
            size = size or _DEFAULT_PLACES.get(name)
        if limiter.setting.endswith("_processes"):
            size = size or max(cores, ceil(used))
        if name == CONNECTION or observed.queues.get(name, 0.0) > QUEUED * observed.total_s:
            places[name] = size or max(round(used), 1)
        elif size or name in _DEFAULT_PLACES:
            places[name] = max(size or _DEFAULT_PLACES[name], ceil(used))
    return places


def _as_json(explanation: Explanation, observed: Observed | None, whose: str = "") -> Json:
    per_s = observed.per_s if observed is not None else 0.0
    part = explanation.part
    if part is None and observed is not None:
        part = max(observed.parts, key=lambda name: observed.parts[name])
    advice = list(explanation.advice)
    if explanation.bound != "rate_limit":  # there fewer at once lose nothing, and spare the provider
        advice = [each for each in advice if each["gain"] is None or each["gain"] >= HELPS]
    return {
        "bound": explanation.bound,
        "what": explanation.what,
        "part": part,
        "rollouts_per_s": per_s,
        "evidence": explanation.evidence,
        "advice": advice,
        "paragraph": _paragraph(
            explanation,
            advice,
            f"{figure(per_s)} rollouts/s {whose}".rstrip(),
            served=bool(observed and observed.shares),
        ),
    }


def _paragraph(explanation: Explanation, advice: list[Advice], rate: str, *, served: bool) -> str:
    evidence = "; ".join(explanation.evidence)
    if explanation.bound == "unknown":
        return f"What bounds throughput is not known: {evidence}."
    text = f"{rate}, bounded by {explanation.what}: {evidence}."
    if advice:
        text += f" What to change: {_change(advice[0], served=served)}"
    return f"{text} {explanation.remark}".rstrip()


def _change(advice: Advice, *, served: bool) -> str:
    override, predicted = str(advice["override"]), advice["predicted_rollouts_per_s"]
    text = f"{advice['change']} ({override})" if override else f"{advice['change']}"
    if predicted is not None:
        gain = advice["gain"]
        more = f"{figure(gain, 2)} times as many" if gain >= HELPS or gain < 1 / HELPS else "as many as now"
        text += f"; predicted: {figure(predicted)} rollouts/s, {more}"
    text += "."
    if override == LATER:
        text += " Its work is left for velo verify, not saved."
    elif served and override.startswith("++"):
        text += " Servers read it when they start: give it to velo run."
    elif served and "connector_limit" in override:
        text += " Servers have the same limit: give it to velo run, too."
    return text
