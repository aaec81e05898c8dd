"""What bounded the throughput of a run, the evidence, what to change, and the predicted gain.

The first rule that applies gives the bound. What the file does not show is reported as not known.
"""

from __future__ import annotations

from typing import Any

from velodrome.profiling.case import HELPS, LATER, Case, Explanation
from velodrome.profiling.observed import Observed
from velodrome.profiling.rules import RULES
from velodrome.profiling.sample import FEWEST, RunSample
from velodrome.timing.figures import counted, figure

Json = dict[str, Any]

SHORTEST_S = 0.5


def make_verdict(sample: RunSample, seconds: float, config: Json | None = None, whose: str = "") -> Json:
    """The verdict on one run of `seconds`. `config` is resolved; `whose` describes the rollouts of the rate."""
    observed = Observed(sample, seconds) if sample.kept and seconds > 0 else None
    if observed is None or observed.kept < FEWEST or not observed.rollouts:
        are = "is" if sample.kept == 1 else "are"
        few = f"{counted(sample.kept, 'rollout')} {are} too few to tell; at least {FEWEST} are needed"
        return _as_json(Explanation("unknown", "not known", [few]), observed)
    if seconds < SHORTEST_S:
        short = f"the run took {seconds:.1g} s: too short to tell"
        return _as_json(Explanation("unknown", "not known", [short]), observed)
    case = Case(observed, config)
    return _as_json(next(explanation for rule in RULES if (explanation := rule(case)) is not None), observed, whose)


def _as_json(explanation: Explanation, observed: Observed | None, whose: str = "") -> Json:
    per_s = observed.per_s if observed is not None else 0.0
    part = explanation.part
    if part is None and observed is not None:
        part = max(observed.parts, key=lambda name: observed.parts[name])
    advice = list(explanation.advice)
    if explanation.bound != "rate_limit":  # there, fewer at once lose nothing
        advice = [each for each in advice if each["gain"] is None or each["gain"] >= HELPS]
    evidence = "; ".join(explanation.evidence)
    paragraph = f"{figure(per_s)} rollouts/s {whose}".rstrip() + f", bounded by {explanation.what}: {evidence}."
    if explanation.bound == "unknown":
        paragraph = f"What bounds throughput is not known: {evidence}."
    elif advice:
        served = bool(observed and observed.shares)
        paragraph += f" What to change: {_change(advice[0], served=served)}"
    return {
        "bound": explanation.bound,
        "what": explanation.what,
        "part": part,
        "rollouts_per_s": per_s,
        "evidence": explanation.evidence,
        "advice": advice,
        "paragraph": f"{paragraph} {explanation.remark}".rstrip(),
    }


def _change(advice: Json, *, served: bool) -> str:
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
