"""The rules that name what bounded a run, in one table at the end: a name, a condition, and what is said.

They are tried in order. A limit that shows comes before one that is inferred; where none applies there are simply too
few rollouts in flight. A number is predicted only where the file tells what it rests on: a server may be asked twice as
many calls at once as it was seen to answer without getting slower, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import cached_property
from math import ceil
from typing import Any, NamedTuple

from velodrome.profiling.attempts import CONNECTION, SETTINGS, TimedAttempt
from velodrome.profiling.config_blocks import UNKNOWN, Block, find_blocks, named_blocks
from velodrome.profiling.load_effect import LoadEffect
from velodrome.profiling.observed import Observed
from velodrome.profiling.phrases import (
    Advice,
    code,
    longest_part,
    make_advice,
    ms,
    number,
    share,
    slots_in_use,
    time_spent,
    took,
)
from velodrome.profiling.prediction import Change, Gain, Prediction, in_thread, unchanged, without
from velodrome.profiling.replay import HERE, Capacity

Json = dict[str, Any]

HELPS = 1.05  # times as many: less is nothing
QUEUED = 0.05  # of a rollout's time, in a limiter's queue
LATER = "+defer_verification=true"
_DEFERRED = ("leave verification for later and score the file with velo verify", LATER)
_BUSY = 0.75  # of an interpreter
_SERVER_BUSY = 0.8  # of a core, by one process
_SERVER_LOADED = 0.5
_MODEL_BUSY = 0.8  # of the time
_MODEL_LONG = 0.4  # of a rollout's time
_HEAVY_S = 0.01  # of CPU per rollout: many times what the collector needs for itself
_BACKED_OFF = 0.1
_IDLE = 0.6  # of the slots
_IDLE_AT_ONCE = 0.8  # of the slots, where most rollouts begin at once and no others follow
_FEW = 3  # rollouts for each slot
_MANY = 20
_MOST_TIMES = 2  # as much load as was seen
_WAITED = 0.2  # of a rollout's waits for others: what it waits for has to bear a higher load
_ALONE = 0.25  # of the run
_ALL = 0.75  # a growth from which on the model may well be unable to answer more
_SLOW = 2  # times as long as all others
_UNKNOWN = "What that gives is not known"


class Explanation(NamedTuple):
    """Why a rule applies and what to change. `part` is the part of a rollout; by default its longest."""

    evidence: list[str]
    advice: Sequence[Advice] = ()
    part: str | None = None
    remark: str = ""
    bound: str = ""  # where one rule has several
    what: str = ""


class Use(NamedTuple):
    """What took most of the collector's interpreter: `kind` is read, write, own, held or cpu."""

    kind: str
    name: str
    seconds: float


class Case:
    """Everything that a rule looks at. `places` are those of each limiter, `cores` this machine's."""

    def __init__(self, observed: Observed, prediction: Prediction, config: Json | None, cores: int) -> None:
        self.observed = observed
        self.prediction = prediction
        self.blocks = find_blocks(config, observed.agent)
        self.named = named_blocks(config)
        self.places = prediction.capacity.places
        self.cores = cores
        repeats = (config or {}).get("num_repeats", 1)
        known = self.blocks is not UNKNOWN and isinstance(repeats, int) and repeats > 0
        self.repeats = repeats if known else None

    def block(self, name: str) -> Block:
        """The block of a server."""
        return self.named.get(name) or Block(name, "<kind>", "<implementation>")

    @cached_property
    def uses(self) -> dict[tuple[str, str], float]:
        """Seconds per rollout on the collector's interpreter, which runs one thing at a time."""
        seen = self.observed
        uses: dict[tuple[str, str], float] = {("write", ""): seen.write_s, ("read", ""): seen.read_s}
        if seen.cpu_s is not None:
            uses["own", ""] = self.prediction.own_s
        uses |= {("held", name): seconds for (where, name), seconds in seen.held.items() if where == HERE}
        if not seen.cpu_is_parallel:
            uses |= {("cpu", name): seconds for (where, name), seconds in seen.cpu.items() if where == HERE}
        return uses

    @cached_property
    def interpreter(self) -> Use | None:
        """What took most of a busy interpreter; None if it had time."""
        (kind, name), most = max(self.uses.items(), key=lambda each: each[1])
        late = self.prediction.loaded and kind in ("held", "cpu") and (self.observed.lag_s or 0.0) > most
        busy = sum(self.uses.values()) * self.observed.tried_per_s >= _BUSY
        return Use(kind, name, most) if busy or late else None

    @cached_property
    def limiter(self) -> str | None:
        """The limiter that is waited for most while its places are in use."""
        seen = self.observed
        queued = {
            name: seconds
            for name, seconds in seen.queues.items()
            if seconds > QUEUED * seen.total_s and seen.tried_per_s * seen.busy_s[name] > _IDLE * self.places[name]
        }
        if CONNECTION in queued:  # what a call takes last: meanwhile it has its place in every other queue
            return CONNECTION
        return max(queued, key=lambda each: queued[each], default=None)

    def doubt(self, times: float, only: Set[str] | None = None) -> str:
        """Why it is not known what so many times the load on these stages would do; empty if it is known."""
        seen = self.observed
        worked_s = sum(seen.waits.values())
        for name, seconds in seen.waits.items():
            if name == "other" or seconds < _WAITED * worked_s or (only and name not in only):
                continue
            effect, what = seen.effect(name, seen.lag_s or 0.0), "the model" if name == "model" else code(name)
            if effect is not None and times > _MOST_TIMES:
                return f"{_UNKNOWN}: {what} was not asked more than {effect.at_once} at once."
            if effect is None or effect.growth is None:
                return f"{_UNKNOWN}: the load on {what} did not vary."
            if effect.saturated is None and effect.slows <= effect.doubt:
                return f"{_UNKNOWN}: whether {what} gets slower with more at once."
            if effect.saturated is not False:
                return f"{_UNKNOWN}: {what} got slower with more at once."
        return ""

    def gain(self, change: Change = unchanged, capacity: Capacity | None = None) -> Gain | None:
        """What a change gives; None where a late event loop hides what the model takes by itself."""
        return None if self.prediction.model_hidden else self.prediction.gain(capacity, change)

    @property
    def hidden(self) -> str:
        """The remark on a gain that is hidden."""
        late = f"{_UNKNOWN}: the event loop was late most of the time that was recorded as the model's."
        return late if self.prediction.model_hidden else ""


def _rate_limited(case: Case) -> bool:
    seen = case.observed
    return bool(seen.rate_limited) and seen.parts["backoff"] >= _BACKED_OFF * seen.total_s


def _fewer_at_once(case: Case) -> Explanation:
    seen = case.observed
    backoff_s = seen.parts["backoff"]
    allowed = seen.tried_per_s
    if seen.model is not None and seen.model_calls:  # while many asked; the mean of the run includes its end
        allowed = max(allowed, seen.model.per_s / seen.model_calls)
    evidence = [
        f"{seen.rate_limited:.1f} calls per rollout were answered with 429",
        f"{took(seen)}, {ms(backoff_s)} of it backing off",
        f"the provider answered {number(allowed * seen.model_calls)} calls/s under load",
    ]
    more = make_advice("ask the provider for a higher rate")
    alone_s = seen.total_s - backoff_s
    enough = max(ceil(1.1 * allowed * alone_s), 1)
    if enough >= seen.limit:
        return Explanation(evidence, [more], "backoff")
    seconds = seen.attempts / min(allowed, enough / alone_s) + alone_s
    gain = Gain(seen.kept / seconds, seen.kept / seconds / seen.per_s)
    change = f"run fewer at once: {enough} are enough for what the provider allows, and none has to wait long"
    advice = [make_advice(change, f"+num_samples_in_parallel={enough}", gain), more]
    return Explanation(evidence, advice, "backoff", "Beyond that only a higher rate helps.")


def _model_computes(case: Case) -> bool:
    """A model that computes in this process, or on this machine, shares its cores among all calls."""
    seen = case.observed
    busy = seen.cpu_s is not None and seen.own_s * seen.tried_per_s >= _BUSY and seen.own_s >= _HEAVY_S
    computes = case.blocks.model.implementation == "local_model" or (busy and seen.model_in_process)
    return computes and seen.parts["model"] >= _MODEL_LONG * seen.total_s and seen.model_use >= _MODEL_BUSY


def _model_blocks(case: Case) -> bool:
    """A model in this process that never lets go of the event loop, however little CPU a busy machine gives it."""
    seen = case.observed
    return seen.model_in_process and seen.one_by_one and seen.parts["model"] >= _MODEL_LONG * seen.total_s


def _stronger_machine(case: Case) -> Explanation:
    seen = case.observed
    where = "in the collector's process" if seen.model_in_process else "on its server's cores"
    evidence = [f"it computes {where}, and had a call to answer {seen.model_use:.0%} of the time"]
    if seen.model_in_process and seen.cpu_share is not None:
        evidence.append(f"the process used {seen.cpu_share:.1f} cores")
    evidence.append(time_spent(seen))
    change = "use a smaller model, or a model server on a machine with more cores or a GPU"
    return Explanation(evidence, [make_advice(change)], "model", "More rollouts at once share the same cores.")


def _interpreter_is_used_to(kind: str) -> Callable[[Case], bool]:
    return lambda case: case.interpreter is not None and case.interpreter.kind == kind


def _faster_input(case: Case) -> Explanation:
    seen = case.observed
    evidence = [
        f"reading a task took {ms(seen.read_s)}, {share(seen.read_s * seen.tried_per_s)} of the time in all",
        "nothing else runs meanwhile",
    ]
    change = "copy the input to a disk of this machine first, with fewer bytes in a task if it is large"
    override = "+input_jsonl_fpath=<a faster disk>/tasks.jsonl"
    return Explanation(evidence, [make_advice(change, override, case.gain(without("read")))], remark=case.hidden)


def _faster_disk(case: Case) -> Explanation:
    seen = case.observed
    evidence = [f"writing a line took {ms(seen.write_s)}, {share(seen.write_s * seen.per_s)} of the time in all"]
    change = "write to a faster disk, one of this machine, and copy the file afterwards"
    override = "+output_jsonl_fpath=<a faster disk>/rollouts.jsonl"
    return Explanation(evidence, [make_advice(change, override, case.gain(without("write")))], "write", case.hidden)


def _loop_evidence(case: Case) -> list[str]:
    seen, use = case.observed, case.interpreter
    if use is not None and use.kind == "held" and not seen.held_burns:
        held = seen.tried_per_s * sum(seconds for (kind, _), seconds in case.uses.items() if kind == "held")
        evidence = [f"the event loop was held {share(held)} of the time"]
    else:
        busy = sum(case.uses.values()) * seen.tried_per_s
        evidence = [f"Python ran {share(busy)} of the time, and runs one thing at a time"]
    return evidence if seen.lag_s is None else [*evidence, f"the event loop was {ms(seen.lag_s)} late"]


def _out_of_the_loop(case: Case) -> Explanation:
    """Code that is async and does not await."""
    seen, use = case.observed, case.interpreter
    assert use is not None
    burns, known = seen.held_burns, seen.cpu_s is not None
    doing = "it computes without await" if burns else "it waits without await"
    if not known:
        doing = "whether it computes or waits meanwhile is not known"
    first = f"{code(use.name)} is async and kept the event loop for {ms(use.seconds)} per rollout: {doing}"
    inside = [name for name, part in seen.inside.items() if part == "verify"]
    deferred = make_advice(*_DEFERRED, case.gain(without("verify", *inside)))
    capacity = case.prediction.capacity._replace(places={"threads": 32, **case.places})
    gain = case.gain(in_thread(use.name), capacity) if known and not burns else None
    moved = make_advice(f"write {code(use.name)} as def, not async def: then it runs in a thread", "", gain)
    advice = [moved] if use.name != "verify" else [deferred] if burns else [deferred, moved]
    return Explanation([first, *_loop_evidence(case)], advice, use.name, case.hidden)


def _more_interpreters(case: Case) -> Explanation:
    """Code in threads, which share one interpreter."""
    use, block = case.interpreter, case.blocks.environment
    assert use is not None
    first = (
        f"{code(use.name)} burned {ms(use.seconds)} of CPU per rollout in a thread, and threads share one interpreter"
    )
    change = f"start {block.name} with velo run, in two processes, if there are idle cores"
    workers = make_advice(change, block.override("num_workers", 2))
    advice = [make_advice(*_DEFERRED), workers] if use.name == "verify" else [workers]
    return _explain_code(use.name, [first, *_loop_evidence(case)], advice)


def _explain_code(name: str, evidence: list[str], advice: list[Advice]) -> Explanation:
    """Of verify or of a tool that burns CPU."""
    if name == "verify":
        return Explanation(evidence, advice, "verify")
    return Explanation(evidence, advice, name, bound="tool", what=code(name))


def _two_collectors(case: Case) -> Explanation:
    first = f"the collector itself needs {ms(case.prediction.own_s)} of CPU per rollout"
    change = "share the tasks between two collectors, each with an output of its own, if there are idle cores"
    return Explanation([first, *_loop_evidence(case)], [make_advice(change)], "other")


def _server_runs_code(case: Case) -> bool:
    """The processes of a server have one interpreter each, too."""
    return any(map(case.observed.crowded, case.observed.servers))


def _more_processes(case: Case) -> Explanation:
    seen = case.observed
    where = max(sorted(seen.servers), key=seen.busy)
    used = {("burned", name): seconds for (place, name), seconds in seen.cpu.items() if place == where}
    used |= {("held", name): seconds for (place, name), seconds in seen.held.items() if place == where}
    did, name = max(used, key=lambda each: used[each])
    processes = seen.processes.get(where, 1)
    what = f"burned {ms(used[did, name])} of CPU" if did == "burned" else f"kept the loop for {ms(used[did, name])}"
    count = "its process was" if processes == 1 else f"its {processes} processes were"
    evidence = [
        f"{code(name)} {what} per rollout in the server {where}",
        f"{count} busy {share(seen.busy(where))} of the time with it",
    ]
    gain = None
    if did == "held" and not seen.shares.get(where):  # a process that computes reports how much of a core it needs
        capacity = case.prediction.capacity._replace(processes={**seen.processes, where: 2 * processes})
        gain = case.prediction.gain(capacity)
    advice = [_processes_advice(case, where, gain)]
    if did == "held":
        return Explanation(evidence, advice, name, bound="server", what=f"the server {where}")
    return _explain_code(name, evidence, advice)


def _processes_advice(case: Case, where: str, gain: Gain | None = None) -> Advice:
    processes = 2 * case.observed.processes.get(where, 1)
    idle = "" if gain is not None else ", if there are idle cores"
    override = case.block(where).override("num_workers", processes)
    return make_advice(f"run {where} in {processes} processes{idle}", override, gain)


def _busiest_server(case: Case) -> str:
    shares = case.observed.shares
    names = [name for name in sorted(shares) if case.block(name).implementation != "local_model"]
    return max(names, key=lambda name: shares[name], default=HERE)


def _server_is_busy(case: Case) -> bool:
    """A server whose process has no time left, whatever for: its code, and answering."""
    return case.observed.shares.get(_busiest_server(case), 0.0) >= _SERVER_BUSY


def _more_workers(case: Case) -> Explanation:
    seen, where = case.observed, _busiest_server(case)
    processes = seen.processes.get(where, 1)
    needed = f"needed {seen.shares[where]:.0%} of a core"
    first = f"the process of {where} {needed}, and one process runs one thing at a time"
    if processes > 1:
        first = f"each of the {processes} processes of {where} {needed}, and runs one thing at a time"
    advice = [_processes_advice(case, where)]
    return Explanation([first, time_spent(seen)], advice, what=f"the server {where}")


def _waits_for_a_place(case: Case) -> bool:
    effect = case.observed.model
    return case.limiter is not None and not (case.limiter == "model" and effect is not None and effect.saturated)


def _more_places(case: Case) -> Explanation:
    """A limiter says by its span who it is and which setting it has."""
    seen, name = case.observed, case.limiter
    assert name is not None
    limiter, places = seen.limiters[name], case.places[name]
    connections = name == CONNECTION
    setting = limiter.setting or f"the limit of {name}"
    one = "the one" if places == 1 else f"one of {places}"
    noun = ("connection" if connections else "place") + ("" if places == 1 else "s")
    evidence = [
        f"{took(seen)}, {ms(seen.queues[name])} of it waiting for {one} {noun} ({setting})",
        slots_in_use(seen),
    ]
    block = case.named.get(limiter.where) or (case.blocks.model if limiter.part == "model" else case.blocks.environment)
    if setting.endswith("_processes"):  # each place is a process, which needs a core
        return _more_verify_processes(case, block, setting, evidence)
    if connections:  # ours to raise to as many as there are slots: nothing is asked more than it was to be asked
        enough, stages = max(seen.limit, _MOST_TIMES * places), seen.connected
    else:
        enough = min(_MOST_TIMES * places, max(seen.limit, places + 1))
        stages = {stage for stage, limited in seen.limited.items() if limited == name}
    doubt = case.doubt(enough / places, stages)
    gain = None
    if not doubt and stages:
        gain = case.prediction.gain(case.prediction.capacity._replace(places={**case.places, name: enough}))
    override = f"+{setting}={enough}" if connections else block.override(setting, enough) if limiter.setting else ""
    of = "" if connections or not limiter.setting else f" of {block.name}"
    advice = [make_advice(f"raise {setting}{of} from {places} to {enough}", override, gain)]
    what = "the model's own limit" if name == "model" else f"the {name}'s limit"
    what = "the connection limit" if connections else "the environment's threads" if name == "threads" else what
    bound = name if name == "threads" else f"{name}_limit"
    return Explanation(evidence, advice, name if connections else "queue", doubt, bound, f"{what} ({setting})")


def _more_verify_processes(case: Case, block: Block, setting: str, evidence: list[str]) -> Explanation:
    places = case.places[case.limiter or ""]
    enough = min(2 * places, case.cores)
    if enough > places:
        change = f"raise {setting} of {block.name} from {places} to {enough}, if the cores are idle"
        advice = make_advice(change, block.override(setting, enough))
    else:
        evidence.append(f"they are as many as the cores here: {case.cores}")
        advice = make_advice(f"{_DEFERRED[0]}, or use a machine with more cores", LATER)
    return Explanation(evidence, [advice], "queue", bound="verify_cpu", what="verification CPU")


def _last_ones(case: Case) -> tuple[list[TimedAttempt], int]:
    """Rollouts in the order they ended, and how many of the last are few."""
    return sorted(case.observed.windows[-1], key=lambda each: each.attempt.end), max(case.observed.limit // 16, 1)


def _ran_alone(case: Case) -> bool:
    """A rollout that took many times as long as any other, and ran alone at the end."""
    seen = case.observed
    rollouts, few = _last_ones(case)
    if seen.limit == 1 or seen.attempts < 2 * seen.limit or len(rollouts) <= few:
        return False
    alone_s = rollouts[-1].attempt.end - rollouts[-1 - few].attempt.end
    longest_s = max(each.attempt.total_s for each in rollouts[-few:])
    return alone_s >= _ALONE * seen.seconds and longest_s >= _SLOW * _others_s(case, few)


def _others_s(case: Case, few: int) -> float:
    """The longest of all but a few."""
    times = sorted({id(each): each.attempt.total_s for window in case.observed.windows for each in window}.values())
    return times[-1 - few]


def _without_the_straggler(case: Case) -> Explanation:
    seen = case.observed
    rollouts, few = _last_ones(case)
    alone_s = rollouts[-1].attempt.end - rollouts[-1 - few].attempt.end
    longest = max(rollouts[-few:], key=lambda each: each.attempt.total_s).attempt
    alone = "it ran alone" if few == 1 else f"no more than {few} ran"
    evidence = [
        f"{longest.key} took {ms(longest.total_s)}, where no other took more than {ms(_others_s(case, few))}",
        f"{alone} for the last {ms(alone_s)} of {ms(seen.seconds)}",
    ]
    times = seen.seconds / (seen.seconds - alone_s)
    change = "find out why it takes so long (velo show); without it the run ends earlier"
    return Explanation(evidence, [make_advice(change, "", Gain(times * seen.per_s, times))])


def _model_saturated(case: Case) -> bool:
    """The model gets slower as much as it is asked more."""
    seen = case.observed
    long = seen.parts["model"] >= _MODEL_LONG * seen.total_s
    return long and seen.model is not None and bool(seen.model.saturated)


def _second_server(case: Case) -> Explanation:
    seen, effect, block = case.observed, case.observed.model, case.blocks.model
    assert effect is not None
    evidence = [
        _by_load(effect),
        f"the model answered {number(effect.per_s)} calls/s, however many waited",
        f"{took(seen)}, {ms(seen.parts['model'])} of it waiting for the model",
    ]
    gain = case.prediction.gain(case.prediction.capacity._replace(rates={"model": 2 * effect.per_s}))
    enough = max(ceil(effect.per_s * effect.low_s * seen.total_s / max(seen.parts["model"], 1e-9)), 1)
    few = "One rollout" if enough == 1 else f"{enough} rollouts"
    remark = f"{few} at once would keep it as busy." if enough < seen.limit else ""
    if block.implementation == "openai_model":
        advice = make_advice("put a second server beside it", block.override("openai_base_url", _urls(block)), gain)
    else:
        advice = make_advice("give the model twice the strength (a second server, more cores)", "", gain)
    return Explanation(evidence, [advice], "model", remark)


def _urls(block: Block) -> str:
    setting = block.settings.get("openai_base_url")
    urls = setting if isinstance(setting, list) else [setting or "<the first server>"]
    return "[" + ",".join([*map(str, urls), "<the second server>/v1"]) + "]"


def _idle_slots(case: Case) -> bool:
    """Slots that nobody needed. A limit that was still changing says nothing about them."""
    seen = case.observed
    if seen.attempts < 2 * seen.limit:  # most begin and end together, so `full` says nothing
        return seen.steady and seen.slots_used < _IDLE_AT_ONCE * seen.mean_limit
    return seen.steady and seen.slots_used < _IDLE * seen.mean_limit and (seen.full is None or seen.full <= 0.8)


def _more_tasks(case: Case) -> Explanation:
    seen = case.observed
    evidence = [
        f"{slots_in_use(seen)} on average",
        f"{seen.attempts} rollouts are few for {seen.limit} at once: the last ones ran almost alone",
    ]
    enough = max(_MANY * seen.limit, seen.attempts)
    override = ""
    if case.repeats is not None:
        override = f"+num_repeats={ceil(enough * case.repeats / seen.attempts)}"
    change = "give it more at once: more tasks, or more repeats of each"
    return Explanation(evidence, [make_advice(change, override, case.prediction.gain(attempts=enough))])


def _more_at_once(case: Case) -> Explanation:
    """Nothing is short but rollouts in flight; if more of them would bring nothing, it is not known what is."""
    seen, effect = case.observed, case.observed.model
    part = longest_part(seen)
    evidence = [slots_in_use(seen), time_spent(seen)]
    if part == "model" and effect is not None and effect.growth is not None:
        evidence.append(_by_load(effect))
    slots, change = _MOST_TIMES * seen.limit, "run more rollouts at once"
    if not seen.steady:
        low, high = seen.limits
        now = "" if seen.limit == high else f" and is at {seen.limit}"
        evidence.append(f"the limit was still changing: auto went from {low} to {high}{now}")
        slots, change = seen.limit, "begin with what auto came to"
    gain = case.prediction.gain(case.prediction.capacity._replace(slots=slots))
    # a model that surely got slower with the load, and perhaps so much that it answers no more with more
    all_given = effect is not None and effect.slows > effect.doubt and effect.slows + effect.doubt >= _ALL
    if gain.gain < HELPS or seen.one_by_one or (part == "model" and all_given):
        if seen.steady and seen.attempts < _FEW * seen.limit:
            return _more_tasks(case)._replace(bound="input", what="too few tasks")
        return Explanation([_nothing_helps(case), *evidence], [], part, bound="unknown", what="not known")
    doubt = case.doubt(slots / seen.limit)
    if any(busy >= _SERVER_LOADED for busy in seen.shares.values()):
        doubt = f"{_UNKNOWN}: a server is half busy already."
    more = make_advice(change, f"+num_samples_in_parallel={slots}", None if doubt else gain)
    auto = make_advice("let the collector find the number", "+num_samples_in_parallel=auto")
    advice = [more] if not seen.steady else [auto, more] if doubt else [more, auto]
    return Explanation(evidence, advice, part, doubt)


def _nothing_helps(case: Case) -> str:
    seen = case.observed
    for name, places in case.places.items():
        used = seen.tried_per_s * seen.busy_s.get(name, 0.0)
        if name != CONNECTION and used > _BUSY * places:
            limiter = seen.limiters.get(name)
            setting = limiter.setting if limiter is not None and limiter.setting else SETTINGS.get(name, name)
            return f"more rollouts at once need more places ({setting}), too: {used:.1f} of {places} were in use"
    return "nothing that shows here was used up, and more rollouts at once would bring little"


def _by_load(effect: LoadEffect) -> str:
    if not effect.slows:
        return f"the model took no longer with {effect.at_once} calls in flight than with few"
    return f"a call took {ms(effect.low_s)} with few others in flight and {ms(effect.high_s)} with {effect.at_once}"


class Rule(NamedTuple):
    """A bound, what it is called, when it applies, and what is then said about it."""

    bound: str
    what: str
    applies: Callable[[Case], bool]
    explain: Callable[[Case], Explanation]


RULES = (
    Rule("rate_limit", "rate limits", _rate_limited, _fewer_at_once),
    Rule("model", "the model", _model_computes, _stronger_machine),
    Rule("slow_input", "reading the tasks", _interpreter_is_used_to("read"), _faster_input),
    Rule("disk", "the disk", _interpreter_is_used_to("write"), _faster_disk),
    Rule("event_loop", "the event loop", _interpreter_is_used_to("held"), _out_of_the_loop),
    Rule("verify_cpu", "verification CPU", _interpreter_is_used_to("cpu"), _more_interpreters),
    Rule("event_loop", "the event loop", _interpreter_is_used_to("own"), _two_collectors),
    Rule("verify_cpu", "verification CPU", _server_runs_code, _more_processes),
    Rule("server", "a server", _server_is_busy, _more_workers),
    Rule("limiter", "a limiter", _waits_for_a_place, _more_places),
    Rule("straggler", "one slow rollout", _ran_alone, _without_the_straggler),
    Rule("model", "the model", _model_blocks, _stronger_machine),
    Rule("model", "the model", _model_saturated, _second_server),
    Rule("input", "too few tasks", _idle_slots, _more_tasks),
    Rule("concurrency", "the concurrency limit", lambda case: True, _more_at_once),
)
