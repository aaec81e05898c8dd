"""What bounded the throughput of a run, why that is believed, what to change, and what the change would give.

Rules name the bound from the run's facts; a replay predicts. What the file cannot tell is said to be not known.
"""

from __future__ import annotations

import os
from math import ceil
from typing import Any

from velodrome.profiling.busy_rules import LATER
from velodrome.profiling.facts import Facts, gather
from velodrome.profiling.findings import Case, Found, number
from velodrome.profiling.overrides import UNKNOWN, Blocks, find_blocks, named_blocks
from velodrome.profiling.rules import HELPS, QUEUED, RULES, concurrency
from velodrome.profiling.sample import Run
from velodrome.profiling.whatif import WhatIf
from velodrome.timing.report import counted

Json = dict[str, Any]

FEWEST = 20  # rollouts; fewer say nothing
SHORTEST_S = 0.5
WHAT = {
    "connection_limit": "the connection limit",
    "concurrency": "the concurrency limit",
    "model": "the model",
    "model_limit": "the model's own limit (max_concurrent)",
    "verify_cpu": "verification CPU",
    "judge_limit": "the judge's limit",
    "tool": "the tool",
    "threads": "the environment's threads",
    "event_loop": "the event loop",
    "disk": "the disk",
    "server": "a server",
    "rate_limit": "rate limits",
    "input": "too few tasks",
    "straggler": "one slow rollout",
    "slow_input": "reading the tasks",
    "unknown": "not known",
}
_DEFAULT_PLACES = {"threads": 32, "judge": 16}
_LOCAL_OWN_S = 0.001  # a model in the collector's process uses CPU that is not the event loop's


def make_verdict(run: Run, seconds: float, config: Json | None = None) -> Json:
    """The verdict on one run that took so long. `config` is the resolved one."""
    facts = gather(run, seconds) if run.kept else None
    if facts is None or facts.kept < FEWEST:
        few = (
            f"{counted(run.kept, 'rollout')} {'is' if run.kept == 1 else 'are'} too few to tell; {FEWEST} are the least"
        )
        return _told(Found("unknown", None, [few]), facts)
    if seconds < SHORTEST_S:
        return _told(Found("unknown", None, [f"the run took {seconds:.1g} s: too short to tell"]), facts)
    case = _case(facts, config)
    for rule in RULES:
        found = rule(case)
        if found is not None:
            return _told(found, facts)
    return _told(concurrency(case), facts)


def _case(facts: Facts, config: Json | None) -> Case:
    blocks = find_blocks(config, facts.agent)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    places = _places(facts, blocks, cores)
    local = blocks.model.implementation == "local_model"
    what_if = WhatIf(facts, places, own_at_most=_LOCAL_OWN_S if local else None)
    repeats = (config or {}).get("num_repeats", 1)
    known = blocks is not UNKNOWN and isinstance(repeats, int) and repeats > 0
    return Case(facts, what_if, blocks, places, named_blocks(config), repeats if known else None, cores)


def _places(facts: Facts, blocks: Blocks, cores: int) -> dict[str, int]:
    """How many places each limiter has: as configured, else as many as were in use while others waited for one."""
    told = {
        "model": blocks.model.number("max_concurrent"),
        "threads": blocks.environment.number("threads"),
        "judge": blocks.environment.number("judge_max_concurrent"),
        "library": blocks.environment.number("verify_processes"),
    }
    found = {}
    for limiter, size in told.items():
        used = facts.tried_per_s * facts.busy_s.get(limiter, 0.0)
        if blocks is not UNKNOWN:
            size = size or _DEFAULT_PLACES.get(limiter)
        if limiter == "library":
            size = size or max(cores, ceil(used))
        if facts.queues.get(limiter, 0.0) > QUEUED * facts.total_s:
            found[limiter] = size or max(round(used), 1)
        elif size or limiter in _DEFAULT_PLACES:
            found[limiter] = max(size or _DEFAULT_PLACES[limiter], ceil(used))
    if facts.connection_limit is not None:
        found["connection"] = facts.connection_limit[1]
    return found


def marked(verdict: Json, shown: set[str]) -> str | None:
    """The part, of those shown, that the verdict names; of a tool that is not shown by itself, the tools."""
    part = verdict["part"]
    if verdict["bound"] == "unknown" or part is None:
        return None
    return "tools" if part not in shown and part.startswith("tool:") else part


def _told(found: Found, facts: Facts | None) -> Json:
    per_s = facts.per_s if facts is not None else 0.0
    what = found.what or WHAT[found.bound]
    part = found.part
    if part is None and facts is not None:
        part = max(facts.parts, key=lambda name: facts.parts[name])
    if found.bound != "rate_limit":  # there fewer at once lose nothing, and spare the provider
        found.advice = [each for each in found.advice if each["gain"] is None or each["gain"] >= HELPS]
    return {
        "bound": found.bound,
        "what": what,
        "part": part,
        "rollouts_per_s": per_s,
        "evidence": found.evidence,
        "advice": found.advice,
        "paragraph": _paragraph(found, what, per_s, served=facts is not None and facts.served),
    }


def _paragraph(found: Found, what: str, per_s: float, *, served: bool) -> str:
    evidence = "; ".join(found.evidence)
    if found.bound == "unknown":
        return f"What bounds throughput is not known: {evidence}."
    text = f"{number(per_s)} rollouts/s, bounded by {what}: {evidence}."
    if found.advice:
        text += f" What to change: {_change(found.advice[0], served=served)}"
    return f"{text} {found.remark}".rstrip()


def _change(advice: Json, *, served: bool) -> str:
    override, predicted = str(advice["override"]), advice["predicted_rollouts_per_s"]
    text = f"{advice['change']} ({override})" if override else f"{advice['change']}"
    if predicted is not None:
        gain = advice["gain"]
        more = f"{number(gain, 2)} times as many" if gain >= HELPS or gain < 1 / HELPS else "as many as now"
        text += f"; predicted: {number(predicted)} rollouts/s, {more}"
    text += "."
    if override == LATER:
        text += " Its work is left for velo verify, not saved."
    elif served and override.startswith("++"):
        text += " Servers read it when they start: give it to velo run."
    elif served and "connector_limit" in override:
        text += " Servers have the same limit: give it to velo run, too."
    return text
