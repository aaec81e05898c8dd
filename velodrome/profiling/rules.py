"""The rules that name what bounded a run. Each looks for one thing and says what it found, with what would help.

They are asked in order; a limit that shows is named before one that is only inferred, and when none applies there are
simply too few rollouts in flight. A number is predicted only where the file tells what it rests on: what answers calls
may be asked twice as many at once as it was seen to answer without getting slower, and no more.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from math import ceil

from velodrome.profiling.busy_rules import BUSY, DEFERRED, blocking_model, computing_model, interpreter, served, server
from velodrome.profiling.facts import Facts
from velodrome.profiling.findings import (
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
from velodrome.profiling.overrides import Block
from velodrome.profiling.saturation import Effect
from velodrome.profiling.stages import Rollout
from velodrome.profiling.whatif import Gain

QUEUED = 0.05  # of a rollout's time, in a limiter's queue
HELPS = 1.05  # times as many: less is nothing
_SERVER_LOADED = 0.5  # of a core, by one process
_BACKED_OFF = 0.1
_IDLE = 0.6  # of the slots
_IDLE_AT_ONCE = 0.8  # of the slots, where most rollouts begin at once and are never followed by another
_FEW = 3  # rollouts for each slot
_MANY = 20
_MOST_TIMES = 2  # as much load as was seen
_WAITED = 0.2  # of a rollout's waits for others: what it waits for has to bear a higher load
_ALONE = 0.25  # of the run
_ALL = 0.75  # a growth from which on it may well be that the model can bear no more
_SLOW = 2  # times as long as all others
_SETTINGS = {
    "model": ("model_limit", "max_concurrent"),
    "threads": ("threads", "threads"),
    "judge": ("judge_limit", "judge_max_concurrent"),
    "library": ("verify_cpu", "verify_processes"),
}


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
    # a connection is what a call takes last: while it waits for one it has its place in every other queue
    limiter = "connection" if "connection" in queued else max(queued, key=lambda each: queued[each])
    if limiter == "connection":  # ours to raise, also where the model got slower: then no gain is printed
        return _connections(case, queued[limiter])
    if limiter == "model" and facts.model is not None and facts.model.saturated:
        return None
    bound, key = _SETTINGS[limiter]
    block = case.blocks.model if limiter == "model" else case.blocks.environment
    places = case.places[limiter]
    evidence = [_queued(facts, queued[limiter], _one_of(places, "place"), key), slots_in_use(facts)]
    if limiter == "library":
        return _verify_processes(case, block, evidence)
    enough = min(_MOST_TIMES * places, max(facts.limit, places + 1))
    doubt = _doubt(case, enough / places, facts.threaded if limiter == "threads" else {limiter})
    gain = None if doubt else case.what_if.gain(replace(case.what_if.limits, places={**case.places, limiter: enough}))
    change = f"raise {key} of {block.name} from {places} to {enough}"
    return Found(bound, "queue", evidence, [make_advice(change, block.override(key, enough), gain)], remark=doubt)


def _queued(facts: Facts, seconds: float, what: str, key: str) -> str:
    return f"{took(facts)}, {ms(seconds)} of it waiting for {what} ({key})"


def _one_of(places: int, what: str) -> str:
    return f"the one {what}" if places == 1 else f"one of {places} {what}s"


def _connections(case: Case, waited_s: float) -> Found:
    """A limit of ours. Raised to as many as there are slots, it asks nothing of the model that was not to be asked."""
    facts, places = case.facts, case.places["connection"]
    name = "limit_per_host" if facts.connection_limit is None else facts.connection_limit[0]
    key = f"global_aiohttp_connector_{name}"
    evidence = [_queued(facts, waited_s, _one_of(places, "connection"), key), slots_in_use(facts)]
    enough = max(facts.limit, _MOST_TIMES * places)
    doubt = _doubt(case, enough / places, facts.connected)
    gain = None
    if not doubt and facts.connected:
        gain = case.what_if.gain(replace(case.what_if.limits, places={**case.places, "connection": enough}))
    advice = make_advice(f"raise {key} from {places} to {enough}", f"+{key}={enough}", gain)
    return Found(
        "connection_limit", "connection", evidence, [advice], what=f"the connection limit ({key})", remark=doubt
    )


def _verify_processes(case: Case, block: Block, evidence: list[str]) -> Found:
    places = case.places["library"]
    enough = min(2 * places, case.cores)
    if enough > places:
        change = f"raise verify_processes of {block.name} from {places} to {enough}, if the cores are idle"
        return Found("verify_cpu", "queue", evidence, [make_advice(change, block.override("verify_processes", enough))])
    evidence.append(f"they are as many as the cores here: {case.cores}")
    change = f"{DEFERRED[0]}, or use a machine with more cores"
    return Found("verify_cpu", "queue", evidence, [make_advice(change, DEFERRED[1])])


def _doubt(case: Case, times: float, only: Set[str] | None = None) -> str:
    """Why it is not known what so many times the load on these stages would do; nothing if it is known."""
    facts = case.facts
    waits: dict[str, float] = {}
    for span in (span for each in facts.rollouts for span in each.spans):
        waits[span.stage.name] = waits.get(span.stage.name, 0.0) + span.stage.wait_s / len(facts.rollouts)
    worked_s = sum(waits.values())
    for name, seconds in waits.items():
        if name == "other" or seconds < _WAITED * worked_s or (only and name not in only):
            continue
        effect, what = facts.effect(name, facts.lag_s or 0.0), "the model" if name == "model" else code(name)
        if effect is not None and times > _MOST_TIMES:
            return f"What that gives is not known: {what} was not asked more than {effect.at_once} at once."
        if effect is None or effect.growth is None:
            return f"What that gives is not known: the load on {what} did not vary."
        if effect.saturated is None and effect.slows <= effect.doubt:
            return f"What that gives is not known: whether {what} gets slower with more at once."
        if effect.saturated is not False:
            return f"What that gives is not known: {what} got slower with more at once."
    return ""


def _straggler(case: Case) -> Found | None:
    """A rollout that took many times as long as any other, and ran alone at the end."""
    facts = case.facts
    few = max(facts.limit // 16, 1)
    rollouts = sorted(facts.rollouts, key=_end)
    if facts.limit == 1 or facts.attempts < 2 * facts.limit:
        return None
    alone_s = _end(rollouts[-1]) - _end(rollouts[-1 - few])
    others_s = sorted(each.recorded.total_s for each in rollouts)[-1 - few]  # the longest of them
    longest = max(rollouts[-few:], key=lambda each: each.recorded.total_s).recorded
    if alone_s < _ALONE * facts.seconds or longest.total_s < _SLOW * others_s:
        return None
    alone = "it ran alone" if few == 1 else f"no more than {few} ran"
    evidence = [
        f"{longest.key} took {ms(longest.total_s)}, where no other took more than {ms(others_s)}",
        f"{alone} for the last {ms(alone_s)} of {ms(facts.seconds)}",
    ]
    times = facts.seconds / (facts.seconds - alone_s)
    change = "find out why it takes so long (velo show); without it the run ends earlier"
    return Found("straggler", None, evidence, [make_advice(change, "", Gain(times * facts.per_s, times))])


def _end(rollout: Rollout) -> float:
    return rollout.recorded.start + rollout.recorded.total_s


def _input(case: Case) -> Found | None:
    """Slots that nobody needed. A limit that was still changing says nothing about them."""
    facts = case.facts
    if facts.attempts < 2 * facts.limit:  # most begin and end together, so `full` says nothing
        idle = facts.slots_used < _IDLE_AT_ONCE * facts.mean_limit
    else:
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
    facts, effect = case.facts, case.facts.model
    part = longest_part(facts)
    evidence = [slots_in_use(facts), time_spent(facts)]
    if part == "model" and effect is not None and effect.growth is not None:
        evidence.append(_by_load(effect))
    slots, change = _MOST_TIMES * facts.limit, "run more rollouts at once"
    if not facts.steady:
        evidence.append(_changing(facts))
        slots, change = facts.limit, "begin with what auto came to"
    gain = case.what_if.gain(replace(case.what_if.limits, slots=slots))
    if gain.gain < HELPS or facts.one_by_one or (part == "model" and effect is not None and _may_be_all(effect)):
        if facts.steady and facts.attempts < _FEW * facts.limit:
            return _too_few(case)
        return Found("unknown", part, [_nothing_helps(case), *evidence])
    doubt = _doubt(case, slots / facts.limit)
    if any(share >= _SERVER_LOADED for share in facts.shares.values()):
        doubt = "What that gives is not known: a server is half busy already."
    more = make_advice(change, f"+num_samples_in_parallel={slots}", None if doubt else gain)
    auto = make_advice("let the collector find the number", "+num_samples_in_parallel=auto")
    advice = [more] if not facts.steady else [auto, more] if doubt else [more, auto]
    return Found("concurrency", part, evidence, advice, remark=doubt)


def _may_be_all(effect: Effect) -> bool:
    """Whether the model surely got slower with the load, and perhaps so much that it answers no more with more."""
    return effect.slows > effect.doubt and effect.slows + effect.doubt >= _ALL


def _nothing_helps(case: Case) -> str:
    facts = case.facts
    for limiter, places in case.places.items():
        used = facts.tried_per_s * facts.busy_s.get(limiter, 0.0)
        if limiter in _SETTINGS and used > BUSY * places:
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


RULES: tuple[Rule, ...] = (
    _rate_limit,
    computing_model,
    interpreter,
    served,
    server,
    _limiter,
    _straggler,
    blocking_model,
    _model,
    _input,
)
