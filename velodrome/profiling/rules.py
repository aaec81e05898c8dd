"""The rules that find the bound of a run, in one table at the end.

They are tried in order. A limit with direct evidence comes before an inferred one; if none applies, too few rollouts
were in flight. A gain is predicted only where the file supports it: for a server, up to twice the load that it is known
to answer without getting slower.
"""

from __future__ import annotations

from math import ceil

from velodrome.profiling.busy_rules import busy_interpreter, busy_server, computing_model
from velodrome.profiling.case import (
    BUSY,
    HELPS,
    IDLE,
    LATER,
    MOST_TIMES,
    NOT_KNOWN,
    Case,
    Explanation,
    Json,
    Rule,
    advise,
    code,
    longest_part,
    ms,
    slots_in_use,
    time_spent,
    took,
)
from velodrome.profiling.config_blocks import Block
from velodrome.profiling.load import LoadEffect
from velodrome.profiling.prediction import Gain
from velodrome.profiling.stages import CONNECTION, SETTINGS, SeenLimiter
from velodrome.timing.figures import figure

_SERVER_LOADED = 0.5
_BACKED_OFF = 0.1  # of a rollout's time, if refusals follow the load
_MOSTLY_BACKED_OFF = 0.5  # if that is not known
_IDLE_AT_ONCE = 0.8  # of the slots, if most rollouts begin at once
_FEW = 3  # rollouts for each slot
_MANY = 20
_ALONE = 0.25  # of the run
_ALL = 0.75  # a growth from which on the model may be saturated
_SLOW = 2  # times as long as all others
_MINUTE_S = 60.0


def _rate_limit(case: Case) -> Explanation | None:
    """Explain a rate limit: a higher load leads to refusals, or most of the time is back-off after them."""
    seen, refusals = case.observed, case.observed.refusals
    backoff_s = seen.parts["backoff"] * refusals.of_backoff
    min_share = _BACKED_OFF if refusals.follow_load else _MOSTLY_BACKED_OFF
    if not refusals.number or refusals.follow_load is False or backoff_s < min_share * seen.total_s:
        return None
    allowed_per_s = seen.tried_per_s
    if seen.model is not None and seen.model_calls:  # under load; the mean of the run includes its end
        allowed_per_s = max(allowed_per_s, seen.model.per_s / seen.model_calls)
    under_load = ", more of them when more were asked" if refusals.follow_load else ""
    evidence = [
        f"{figure(100 * refusals.share, 2)}% of the calls were answered with 429{under_load}",
        f"{took(seen)}, {ms(backoff_s)} of it backing off after that",
        f"the provider answered {figure(allowed_per_s * seen.model_calls)} calls/s under load",
    ]
    advice, remark = [advise("ask the provider for a higher rate")], ""
    if refusals.follow_load:
        advice, remark = (
            [_within_the_rate(case, allowed_per_s, backoff_s), *advice],
            "Beyond that only a higher rate helps.",
        )
    else:
        remark = f"{NOT_KNOWN}: whether the provider answers more when more is asked."
    return Explanation("rate_limit", "rate limits", evidence, advice, "backoff", remark)


def _within_the_rate(case: Case, allowed_per_s: float, backoff_s: float) -> Json:
    """Advise fewer rollouts at once; if refused calls wait for long, a limit on requests instead."""
    seen = case.observed
    alone_s = seen.total_s - seen.parts["backoff"]
    slots = max(ceil(1.1 * allowed_per_s * alone_s), 1)
    seconds = seen.attempts / min(allowed_per_s, slots / alone_s) + alone_s
    gain = Gain(seen.kept / seconds, seen.kept / seconds / seen.per_s)
    if backoff_s <= alone_s * seen.refusals.per_rollout:
        change = f"run fewer at once: {slots} are enough for what the provider allows, and none has to wait long"
        return advise(change, f"+num_samples_in_parallel={min(slots, seen.limit)}", gain)
    if seen.shares:  # servers call their models themselves, and take no rate
        return advise("run fewer at once", f"+num_samples_in_parallel={max(seen.limit // 2, 1)}")
    per_minute = max(int(60 * allowed_per_s * seen.model_calls), 1)
    return advise("ask for no more than the provider allows", f"+requests_per_minute={per_minute}", gain)


def _own_rate(case: Case) -> Explanation | None:
    """Explain the run's limit on model calls per minute. What the provider allows is not known."""
    seen, name = case.observed, case.rate
    if name is None:
        return None
    limit = seen.limiters[name].places or 0
    calls = f"{figure(seen.attempts * seen.model_calls)} model calls were made in {ms(seen.seconds)}"
    if seen.seconds >= _MINUTE_S:  # a shorter run says little about a minute
        calls += f", {figure(60 * seen.tried_per_s * seen.model_calls)} per minute"
    evidence = [f"{took(seen)}, {ms(seen.queues[name])} of it waiting for {name}={limit}", calls]
    advice = advise(f"raise {name} if the provider allows more", f"+{name}={2 * limit}")
    return Explanation(f"{name}_limit", name, evidence, [advice], "queue", f"{NOT_KNOWN}: what the provider allows.")


def _limiter(case: Case) -> Explanation | None:
    """Explain a limiter whose places were all in use. Its span has its name and setting."""
    seen, name = case.observed, case.limiter
    if name is None or (name == "model" and seen.model is not None and seen.model.saturated):
        return None
    limiter, places = seen.limiters[name], case.places[name]
    setting = limiter.setting or f'Limiter("{name}", {places})'
    place_text = "the one" if places == 1 else f"one of {places}"
    noun = ("connection" if name == CONNECTION else "place") + ("" if places == 1 else "s")
    wait = f"{took(seen)}, {ms(seen.queues[name])} of it waiting for {place_text} {noun} ({setting})"
    evidence = [wait, slots_in_use(seen)]
    if setting.endswith("_processes"):  # each place is a process, which needs a core
        return _more_processes(case, limiter, places, evidence)
    if name == CONNECTION:
        return _more_connections(case, setting, places, evidence)
    new_places = min(MOST_TIMES * places, max(seen.limit, places + 1))
    block = case.limited_block(limiter)
    override = block.override(setting, new_places) if limiter.setting else ""
    subject = f"{setting} of {block.name}" if limiter.setting else f"the limit of {setting}"
    advice, doubt = _more_places(case, name, new_places, f"raise {subject} from {places} to {new_places}", override)
    what = "the model's own limit" if name == "model" else f"the {name}'s limit"
    what = "the environment's threads" if name == "threads" else what
    bound = name if name == "threads" else f"{name}_limit"
    return Explanation(bound, f"{what} ({setting})", evidence, [advice], "queue", doubt)


def _more_connections(case: Case, setting: str, places: int, evidence: list[str]) -> Explanation:
    """Advise more connections: up to one for each slot."""
    connections = max(case.observed.limit, MOST_TIMES * places)
    change = f"raise {setting} from {places} to {connections}"
    advice, doubt = _more_places(case, CONNECTION, connections, change, f"+{setting}={connections}")
    what = f"the connection limit ({setting})"
    return Explanation("connection_limit", what, evidence, [advice], CONNECTION, doubt)


def _more_places(case: Case, name: str, new_places: int, change: str, override: str) -> tuple[Json, str]:
    """The advice with a prediction, or with the reason why there is none."""
    seen = case.observed
    stages = {stage for stage, limited in seen.limited.items() if limited == name}
    stages = seen.connected if name == CONNECTION else stages
    doubt = case.doubt(new_places / case.places[name], stages)
    gain = case.gain(places={**case.places, name: new_places}) if stages and not doubt else None
    return advise(change, override, gain), doubt


def _more_processes(case: Case, limiter: SeenLimiter, places: int, evidence: list[str]) -> Explanation:
    is_verify, block = limiter.part == "verify", case.limited_block(limiter)
    processes = min(2 * places, case.cores)
    if processes > places:
        change = f"raise {limiter.setting} of {block.name} from {places} to {processes}, if the cores are idle"
        advice = advise(change, block.override(limiter.setting, processes))
    else:
        evidence.append(f"they are as many as the cores here: {case.cores}")
        later = "leave verification for later and score the file with velo verify, or use a machine with more cores"
        advice = advise(later, LATER) if is_verify else advise("use a machine with more cores")
    if is_verify:
        return Explanation("verify_cpu", "verification CPU", evidence, [advice], "queue")
    what = "the CPU of tools" if limiter.part == "tools" else code(limiter.part)
    return Explanation("tool", what, evidence, [advice], "queue")


def _straggler(case: Case) -> Explanation | None:
    """Explain a rollout that took many times as long as the others, and ran alone at the end."""
    seen = case.observed
    rollouts = sorted(seen.windows[-1], key=lambda each: each.attempt.end)
    last_count = max(seen.limit // 16, 1)
    if seen.limit == 1 or seen.attempts < 2 * seen.limit or len(rollouts) <= last_count:
        return None
    alone_s = rollouts[-1].attempt.end - rollouts[-1 - last_count].attempt.end
    longest = max(rollouts[-last_count:], key=lambda each: each.attempt.total_s).attempt
    times = sorted({id(each): each.attempt.total_s for window in seen.windows for each in window}.values())
    others_s = times[-1 - last_count]
    if alone_s < _ALONE * seen.seconds or longest.total_s < _SLOW * others_s:
        return None
    alone = "it ran alone" if last_count == 1 else f"no more than {last_count} ran"
    evidence = [
        f"{longest.key} took {ms(longest.total_s)}, where no other took more than {ms(others_s)}",
        f"{alone} for the last {ms(alone_s)} of {ms(seen.seconds)}",
    ]
    gain = seen.seconds / (seen.seconds - alone_s)
    change = "find out why it takes so long (velo show); without it the run ends earlier"
    return Explanation("straggler", "one slow rollout", evidence, [advise(change, "", Gain(gain * seen.per_s, gain))])


def _saturated_model(case: Case) -> Explanation | None:
    """Explain a saturated model: with more calls in flight each takes longer."""
    seen, effect, block = case.observed, case.observed.model, case.blocks.model
    if effect is None or not effect.saturated or not case.model_is_long:
        return None
    evidence = [
        _by_load(effect),
        f"the model answered {figure(effect.per_s)} calls/s, however many waited",
        f"{took(seen)}, {ms(seen.parts['model'])} of it waiting for the model",
    ]
    slots = max(ceil(effect.per_s * effect.low_s * seen.total_s / max(seen.parts["model"], 1e-9)), 1)
    count_text = "One rollout" if slots == 1 else f"{slots} rollouts"
    remark = f"{count_text} at once would keep it as busy." if slots < seen.limit else ""
    change, override = "give the model twice the strength (a second server, more cores)", ""
    if block.implementation == "openai_model":
        change, override = "put a second server beside it", block.override("openai_base_url", _urls(block))
    advice = advise(change, override, case.gain(rates={"model": 2 * effect.per_s}))
    return Explanation("model", "the model", evidence, [advice], "model", remark)


def _urls(block: Block) -> str:
    setting = block.settings.get("openai_base_url")
    urls = setting if isinstance(setting, list) else [setting or "<the first server>"]
    return "[" + ",".join([*map(str, urls), "<the second server>/v1"]) + "]"


def _idle_slots(case: Case) -> Explanation | None:
    """Explain unused slots, unless the limit was still changing."""
    seen = case.observed
    if seen.attempts < 2 * seen.limit:  # most begin and end together, so `full` says nothing
        idle = seen.slots_used < _IDLE_AT_ONCE * seen.mean_limit
    else:
        idle = seen.slots_used < IDLE * seen.mean_limit and (seen.full is None or seen.full <= 0.8)
    return _few_tasks(case) if seen.steady and idle else None


def _few_tasks(case: Case) -> Explanation:
    seen = case.observed
    evidence = [
        f"{slots_in_use(seen)} on average",
        f"{seen.attempts} rollouts are few for {seen.limit} at once: the last ones ran almost alone",
    ]
    attempts = max(_MANY * seen.limit, seen.attempts)
    override = "" if case.repeats is None else f"+num_repeats={ceil(attempts * case.repeats / seen.attempts)}"
    change = "give it more at once: more tasks, or more repeats of each"
    advice = advise(change, override, case.prediction.gain(attempts=attempts))
    return Explanation("input", "too few tasks", evidence, [advice])


def _concurrency(case: Case) -> Explanation:
    """Explain that too few rollouts were in flight; if more would not help, the bound is unknown."""
    seen, effect = case.observed, case.observed.model
    part = longest_part(seen)
    evidence = [slots_in_use(seen), time_spent(seen)]
    if part == "model" and effect is not None and (effect.slows or effect.saturated is False):
        evidence.append(_by_load(effect))
    slots, change = MOST_TIMES * seen.limit, "run more rollouts at once"
    if not seen.steady:
        low, high = seen.limits
        current = "" if seen.limit == high else f" and is at {seen.limit}"
        evidence.append(f"the limit was still changing: auto went from {low} to {high}{current}")
        slots, change = seen.limit, "begin with what auto came to"
    gain = case.gain(slots=slots)
    # a model that got slower with the load, perhaps so much that it is saturated
    model_exhausted = effect is not None and effect.slows > 0 and effect.slows + effect.doubt >= _ALL
    if gain.gain < HELPS or seen.one_by_one or (part == "model" and model_exhausted):
        if seen.steady and seen.attempts < _FEW * seen.limit:
            return _few_tasks(case)
        return Explanation("unknown", "not known", [_nothing_helps(case), *evidence], [], part)
    doubt = case.doubt(slots / seen.limit)
    if any(busy >= _SERVER_LOADED for busy in seen.shares.values()):
        doubt = f"{NOT_KNOWN}: a server is half busy already."
    advice = advise(change, f"+num_samples_in_parallel={slots}", None if doubt else gain)
    harmless = (
        seen.refusals.number > 0 and seen.refusals.follow_load is False
    )  # `auto` would reduce the load for these 429s
    if doubt and seen.steady and not harmless:
        advice = advise("let the collector find the number", "+num_samples_in_parallel=auto")
    return Explanation("concurrency", "the concurrency limit", evidence, [advice], part, doubt)


def _nothing_helps(case: Case) -> str:
    seen = case.observed
    for name, places in case.places.items():
        in_use = seen.tried_per_s * seen.busy_s.get(name, 0.0)
        if name != CONNECTION and in_use > BUSY * places:
            limiter = seen.limiters.get(name)
            setting = limiter.setting if limiter is not None and limiter.setting else SETTINGS.get(name, name)
            return f"more rollouts at once need more places ({setting}), too: {in_use:.1f} of {places} were in use"
    return "nothing that shows here was used up, and more rollouts at once would bring little"


def _by_load(effect: LoadEffect) -> str:
    if not effect.slows:
        return f"the model took no longer with {effect.at_once} calls in flight than with few"
    return f"a call took {ms(effect.low_s)} with few others in flight and {ms(effect.high_s)} with {effect.at_once}"


RULES: tuple[Rule, ...] = (
    _rate_limit,
    computing_model,
    busy_interpreter,
    busy_server,
    _own_rate,
    _limiter,
    _straggler,
    _saturated_model,
    _idle_slots,
    _concurrency,
)
