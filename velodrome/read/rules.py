"""The rules that name what bounded a run. Each looks for one thing and says what it found, with what would help.

They are asked in order; a limit that shows is named before one that is only inferred, and when none applies there are
simply too few rollouts in flight.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from velodrome.read.facts import Facts
from velodrome.read.findings import (
    Case,
    Found,
    Rule,
    code,
    longest_part,
    make_advice,
    ms,
    number,
    slots_in_use,
    time_spent,
    took,
)
from velodrome.read.overrides import Block
from velodrome.read.replay import HERE
from velodrome.read.saturation import Effect
from velodrome.read.whatif import Gain, elsewhere, in_thread, without

QUEUED = 0.05  # of a rollout's time, in a limiter's queue
HELPS = 1.05  # times as many: less is nothing
LATER = "+defer_verification=true"
_BUSY = 0.75  # of an interpreter
_SERVER_BUSY, _SERVER_LOADED = 0.8, 0.5  # of a core, by one process
_BACKED_OFF = 0.1
_IDLE = 0.6  # of the slots
_FEW = 3  # rollouts for each slot
_MANY = 20
_SETTINGS = {
    "model": ("model_limit", "max_concurrent"),
    "threads": ("threads", "threads"),
    "judge": ("judge_limit", "judge_max_concurrent"),
    "library": ("verify_cpu", "verify_processes"),
}
_LATER = ("leave verification for later and score the file with velo verify", LATER)


def _rate_limit(case: Case) -> Found | None:
    """Answered 429, and time lost to it."""
    facts = case.facts
    backoff_s = facts.parts["backoff"]
    if not facts.rate_limited or backoff_s < _BACKED_OFF * facts.total_s:
        return None
    evidence = [
        f"{facts.rate_limited:.1f} calls a rollout were answered with 429",
        f"{took(facts)}, {ms(backoff_s)} of it backing off",
    ]
    more = make_advice("ask the provider for a higher rate")
    allowed = facts.tried_per_s
    if facts.model is not None and facts.model_calls:  # while many asked; the run's mean has its end in it, too
        allowed = max(allowed, facts.model.per_s / facts.model_calls)
    evidence.append(f"the provider answered {number(allowed * facts.model_calls)} calls/s while many were asked")
    alone_s = facts.total_s - backoff_s
    enough = max(ceil(1.1 * allowed * alone_s), 1)
    if enough >= facts.limit:
        return Found("rate_limit", "backoff", evidence, [more])
    seconds = facts.attempts / min(allowed, enough / alone_s) + alone_s
    gain = Gain(facts.kept / seconds, facts.kept / seconds / facts.per_s)
    change = f"run fewer at once: {enough} are enough for what the provider allows, and none has to wait long"
    advice = [make_advice(change, f"+num_samples_in_parallel={enough}", gain), more]
    return Found("rate_limit", "backoff", evidence, advice, remark="Beyond that only a higher rate helps.")


def _interpreter(case: Case) -> Found | None:
    """One thing at a time can run on the interpreter; find what takes it."""
    facts, what_if = case.facts, case.what_if
    per_s = facts.tried_per_s
    users: dict[tuple[str, str], float] = {("write", ""): facts.write_s}
    if facts.cpu_s is not None:
        users["own", ""] = what_if.own_s
    users |= {("held", name): seconds for (where, name), seconds in facts.held.items() if where == HERE}
    if not facts.cpu_is_parallel:
        users |= {("cpu", name): seconds for (where, name), seconds in facts.cpu.items() if where == HERE}
    busy = sum(users.values()) * per_s
    (kind, name), most = max(users.items(), key=lambda each: each[1])
    late = what_if.loaded and kind in ("held", "cpu") and (facts.lag_s or 0.0) > most
    if busy < _BUSY and not late:
        return None
    if kind == "held" and not facts.held_burns:
        held = per_s * sum(seconds for (how, _), seconds in users.items() if how == "held")
        evidence = [f"the event loop was held {min(held, 1.0):.0%} of the time"]
    else:
        evidence = [f"Python ran {min(busy, 1.0):.0%} of the time, and runs one thing at a time"]
    if facts.lag_s is not None:
        evidence.append(f"the event loop was {ms(facts.lag_s)} late")
    if kind == "held":
        return _held(case, name, most, evidence)
    if kind == "cpu":
        return _burned(case, name, most, evidence)
    if kind == "write":
        return _disk(case, evidence)
    evidence.insert(0, f"the collector itself needs {ms(what_if.own_s)} of CPU a rollout")
    change = "share the tasks between two collectors, each with an output of its own, if there are idle cores"
    return Found("event_loop", "other", evidence, [make_advice(change)])


def _held(case: Case, name: str, held_s: float, evidence: list[str]) -> Found:
    facts, what_if = case.facts, case.what_if
    burns, known = facts.held_burns, facts.cpu_s is not None
    doing = "it computes without await" if burns else "it waits without await"
    if not known:
        doing = "whether it computes or waits meanwhile is not known"
    evidence.insert(0, f"{code(name)} is async and kept the event loop for {ms(held_s)} a rollout: {doing}")
    deferred = make_advice(*_LATER, what_if.gain(change=without("verify")))
    limits = replace(what_if.limits, places={"threads": 32, **case.places})
    moved = make_advice(
        f"write {code(name)} as def, not async def: then it runs in a thread",
        "",
        what_if.gain(limits, in_thread(name, burns=burns)) if known else None,
    )
    if name != "verify":
        advice = [moved]
    elif burns:
        advice = [deferred]
    else:
        advice = [deferred, moved]
    remark = "What the model takes by itself is an estimate, since its answers were read late."
    return Found("event_loop", name, evidence, advice, remark=remark)


def _burned(case: Case, name: str, burned_s: float, evidence: list[str]) -> Found:
    what_if = case.what_if
    evidence.insert(
        0, f"{code(name)} burned {ms(burned_s)} of CPU a rollout in a thread, and threads share one interpreter"
    )
    block = case.blocks.environment
    limits = replace(what_if.limits, processes={**what_if.limits.processes, block.name: 2})
    workers = make_advice(
        f"start {block.name} with velo run, in two processes, if there are idle cores",
        block.override("num_workers", 2),
        what_if.gain(limits, elsewhere(block.name)),
    )
    if name == "verify":
        deferred = make_advice(*_LATER, what_if.gain(change=without("verify")))
        return Found("verify_cpu", "verify", evidence, [deferred, workers])
    return Found("tool", name, evidence, [workers], what=f"the tool {name.removeprefix('tool:')}")


def _disk(case: Case, evidence: list[str]) -> Found:
    facts, what_if = case.facts, case.what_if
    evidence.insert(0, f"writing a line took {ms(facts.write_s)}, {facts.write_s * facts.per_s:.0%} of the time in all")
    gain = what_if.gain(change=without("write"))
    change = "write to a faster disk, one of this machine, and copy the file afterwards"
    return Found(
        "disk", "write", evidence, [make_advice(change, "+output_jsonl_fpath=<a faster disk>/rollouts.jsonl", gain)]
    )


def _served(case: Case) -> Found | None:
    """The processes of a server have one interpreter each, too."""
    facts = case.facts
    where = max(sorted(facts.servers), key=facts.busy, default=HERE)
    if where == HERE or not facts.crowded(where):
        return None
    busy = facts.busy(where)
    processes = facts.processes.get(where, 1)
    names: dict[str, float] = {}
    for (place, name), seconds in (*facts.cpu.items(), *facts.held.items()):
        if place == where:
            names[name] = names.get(name, 0.0) + seconds
    name = max(names, key=lambda each: names[each])
    count = "its process was" if processes == 1 else f"its {processes} processes were"
    evidence = [
        f"{code(name)} burned {ms(names[name])} of CPU a rollout in the server {where}",
        f"{count} busy {min(busy, 1.0):.0%} of the time with it",
    ]
    limits = replace(case.what_if.limits, processes={**facts.processes, where: 2 * processes})
    gain = case.what_if.gain(limits)
    override = _block(case, where).override("num_workers", 2 * processes)
    change = f"run {where} in {2 * processes} processes, if there are idle cores"
    advice = [make_advice(change, override, gain)]
    if name == "verify":
        return Found("verify_cpu", "verify", evidence, advice)
    return Found("tool", name, evidence, advice, what=f"the tool {name.removeprefix('tool:')}")


def _server(case: Case) -> Found | None:
    """A server whose process has no time left, whatever for: what its code needs of it, and what answering does."""
    facts = case.facts
    shares = {
        name: share
        for name, share in facts.shares.items()
        if _block(case, name).implementation != "local_model"  # which computes on many cores
    }
    where = max(sorted(shares), key=lambda name: shares[name], default=HERE)
    if where == HERE or shares[where] < _SERVER_BUSY:
        return None
    processes = facts.processes.get(where, 1)
    share = f"{shares[where]:.0%} of a core"
    if processes == 1:
        evidence = [f"the process of {where} needed {share}, and one process runs one thing at a time"]
    else:
        evidence = [f"each of the {processes} processes of {where} needed {share}, and runs one thing at a time"]
    evidence.append(time_spent(facts))
    change = f"run {where} in {2 * processes} processes, if there are idle cores"
    advice = make_advice(change, _block(case, where).override("num_workers", 2 * processes))
    return Found("server", None, evidence, [advice], what=f"the server {where}")


def _block(case: Case, name: str) -> Block:
    return case.named.get(name) or Block(name, "<kind>", "<implementation>")


def _input(case: Case) -> Found | None:
    """Slots that nobody needed. A limit that was still changing says nothing about them."""
    facts = case.facts
    idle = facts.slots_used < _IDLE * facts.mean_limit and (facts.full is None or facts.full <= 0.8)
    return _too_few(case) if idle and facts.steady else None


def _too_few(case: Case) -> Found:
    facts = case.facts
    evidence = [
        f"{slots_in_use(facts)} on average",
        f"{facts.attempts} rollouts are few for {facts.limit} at once: the last ones ran almost alone",
    ]
    enough = max(_MANY * facts.limit, facts.attempts)
    override = ""
    if case.repeats is not None:
        override = f"+num_repeats={ceil(enough * case.repeats / facts.attempts)}"
    change = "give it more at once: more tasks, or more repeats of each"
    return Found("input", None, evidence, [make_advice(change, override, case.what_if.gain(attempts=enough))])


def _limiter(case: Case) -> Found | None:
    """A queue in front of something that lets only so many through."""
    facts = case.facts
    queued = {
        name: seconds
        for name, seconds in facts.queues.items()
        if seconds > QUEUED * facts.total_s and facts.tried_per_s * facts.busy_s[name] > _IDLE * case.places[name]
    }
    if not queued:
        return None
    limiter = max(queued, key=lambda each: queued[each])
    bound, key = _SETTINGS[limiter]
    block = case.blocks.model if limiter == "model" else case.blocks.environment
    places = case.places[limiter]
    if limiter == "model" and facts.model is not None and facts.model.saturated:
        return None
    one = "the one place" if places == 1 else f"one of {places} places"
    evidence = [
        f"{took(facts)}, {ms(queued[limiter])} of it waiting for {one} ({key})",
        slots_in_use(facts),
    ]
    enough = _enough(case, limiter)
    if limiter == "library":
        enough = min(enough, case.cores)
        if enough <= places:
            evidence.append(f"they are as many as the cores here: {case.cores}")
            change = f"{_LATER[0]}, or use a machine with more cores"
            return Found(bound, "queue", evidence, [make_advice(change, LATER)])
    gain = case.what_if.gain(replace(case.what_if.limits, places={**case.places, limiter: enough}))
    change = f"raise {key} of {block.name} from {places} to {enough}"
    remark = ""
    if limiter == "model":
        remark = "That holds if the model can answer so many at once; the file cannot tell."
    return Found(bound, "queue", evidence, [make_advice(change, block.override(key, enough), gain)], remark=remark)


def _enough(case: Case, limiter: str) -> int:
    """Places beyond which more bring little; as many as there are slots are always enough for calls made one by one."""
    places, most = case.places[limiter], max(case.facts.limit, case.places[limiter] * 2)
    best = Gain(0.0, 1.0)
    found = places
    for wider in [*(places * 2**power for power in range(1, 11) if places * 2**power < most), most]:
        gain = case.what_if.gain(replace(case.what_if.limits, places={**case.places, limiter: wider}))
        if gain.gain < best.gain * 1.05:
            break
        found, best = wider, gain
    return max(found, min(2 * places, most))


def _model(case: Case) -> Found | None:
    """The model slows down as much as it is asked more."""
    facts = case.facts
    effect = facts.model
    if effect is None or not effect.saturated or facts.parts["model"] < 0.4 * facts.total_s:
        return None
    evidence = [
        f"a call took {ms(effect.low_s)} with few others in flight and {ms(effect.high_s)} with {effect.at_once:.0f}",
        f"the model answered {number(effect.per_s)} calls/s, however many waited",
        f"{took(facts)}, {ms(facts.parts['model'])} of it waiting for the model",
    ]
    limits = replace(case.what_if.limits, rates={"model": 2 * effect.per_s})
    gain = case.what_if.gain(limits)
    block = case.blocks.model
    enough = max(ceil(effect.per_s * effect.low_s * facts.total_s / max(facts.parts["model"], 1e-9)), 1)
    few = "One rollout" if enough == 1 else f"{enough} rollouts"
    remark = f"{few} at once would keep it as busy." if enough < facts.limit else ""
    if block.implementation == "openai_model":
        advice = make_advice("put a second server beside it", block.override("openai_base_url", _urls(block)), gain)
    else:
        advice = make_advice("give the model twice the strength (a second server, more cores)", "", gain)
    return Found("model", "model", evidence, [advice], remark=remark)


def _urls(block: Block) -> str:
    given = block.settings.get("openai_base_url")
    urls = given if isinstance(given, list) else [given or "<the first server>"]
    return "[" + ",".join([*map(str, urls), "<the second server>/v1"]) + "]"


def concurrency(case: Case) -> Found:
    """Nothing is short but rollouts in flight; if more of them would bring nothing, it is not known what is."""
    facts, effect, remarks = case.facts, case.facts.model, []
    part = longest_part(facts)
    evidence = [slots_in_use(facts), time_spent(facts)]
    growth = 0.0
    if part == "model" and effect is not None and effect.growth is not None:
        growth = effect.slows
        evidence.append(_by_load(effect))
    elif part == "model":
        remarks.append(
            "Whether the model can answer more at once is not known, since its load did not vary; "
            "the prediction holds if it can."
        )
    if facts.served:
        remarks.append("The CPU of servers is seen only coarsely: one that is busy may bound it sooner.")
    if facts.steady:
        slots, gain = case.what_if.more_slots(growth=growth)
        change = "run more rollouts at once"
    else:
        evidence.append(_changing(facts))
        slots = facts.limit
        gain = case.what_if.gain(replace(case.what_if.limits, slots=slots))
        change = "begin with what auto came to"
    if gain.gain < HELPS:
        if facts.steady and facts.attempts < _FEW * facts.limit:
            return _too_few(case)
        return Found("unknown", part, [_nothing_helps(case), *evidence])
    loaded = any(share >= _SERVER_LOADED for share in facts.shares.values())
    advice = [make_advice(change, f"+num_samples_in_parallel={slots}", None if loaded else gain)]
    if facts.steady:
        advice.append(make_advice("or let the collector find the number", "+num_samples_in_parallel=auto"))
    return Found("concurrency", part, evidence, advice, remark=" ".join(remarks))


def _nothing_helps(case: Case) -> str:
    facts = case.facts
    for limiter, places in case.places.items():
        used = facts.tried_per_s * facts.busy_s.get(limiter, 0.0)
        if used > _BUSY * places:
            key = _SETTINGS[limiter][1]
            return f"more rollouts at once need more places ({key}), too: {used:.1f} of {places} were in use"
    return "nothing that shows here was used up, and more rollouts at once would bring little"


def _by_load(effect: Effect) -> str:
    if not effect.slows:
        return f"the model took no longer with {effect.at_once} calls in flight than with few"
    return f"a call took {ms(effect.low_s)} with few others in flight and {ms(effect.high_s)} with {effect.at_once}"


def _changing(facts: Facts) -> str:
    low, high = facts.limits
    now = "" if facts.limit == high else f" and is at {facts.limit}"
    return f"the limit was still changing: auto went from {low} to {high}{now}"


RULES: tuple[Rule, ...] = (_rate_limit, _interpreter, _served, _server, _limiter, _input, _model)
