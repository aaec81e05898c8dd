"""The rules for runs in which a process had no time left: the collector's own, a server's, or a model's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from velodrome.profiling.findings import Case, Found, code, make_advice, ms, time_spent
from velodrome.profiling.overrides import Block
from velodrome.profiling.replay import HERE, Limits
from velodrome.profiling.stages import Change
from velodrome.profiling.whatif import Gain, in_thread, without

Json = dict[str, Any]

LATER = "+defer_verification=true"
DEFERRED = ("leave verification for later and score the file with velo verify", LATER)
BUSY = 0.75  # of an interpreter
_SERVER_BUSY = 0.8  # of a core, by one process
_MODEL_BUSY = 0.8  # of the time
_HIDDEN = "What that gives is not known: the event loop was late most of the time that was recorded as the model's."
_HEAVY_S = 0.01  # of CPU a rollout: many times what the collector needs for itself


def computing_model(case: Case) -> Found | None:
    """A model that computes in this process, or on this machine, shares its cores among all calls."""
    facts, block = case.facts, case.blocks.model
    local = block.implementation == "local_model"
    share = facts.own_s() * facts.tried_per_s
    burns = facts.cpu_s is not None and share >= BUSY and facts.own_s() >= _HEAVY_S
    burns = facts.model_in_process and burns
    if not (local or burns) or facts.parts["model"] < 0.4 * facts.total_s or facts.model_use < _MODEL_BUSY:
        return None
    return _computing(case)


def blocking_model(case: Case) -> Found | None:
    """A model in this process that never lets go of the event loop, however little CPU a busy machine gives it."""
    blocks = case.facts.model_in_process and case.facts.one_by_one
    return _computing(case) if blocks and case.facts.parts["model"] >= 0.4 * case.facts.total_s else None


def _computing(case: Case) -> Found:
    facts = case.facts
    where = "in the collector's process" if facts.model_in_process else "on its server's cores"
    evidence = [f"it computes {where}, and had a call to answer {facts.model_use:.0%} of the time"]
    if facts.model_in_process and facts.cpu_share is not None:
        evidence.append(f"the process used {facts.cpu_share:.1f} cores")
    evidence.append(time_spent(facts))
    change = "use a smaller model, or a model server on a machine with more cores or a GPU"
    remark = "More rollouts at once share the same cores."
    return Found("model", "model", evidence, [make_advice(change)], remark=remark)


def interpreter(case: Case) -> Found | None:
    """One thing at a time can run on the interpreter; find what takes it."""
    facts, what_if = case.facts, case.what_if
    per_s = facts.tried_per_s
    users: dict[tuple[str, str], float] = {("write", ""): facts.write_s, ("read", ""): facts.read_s}
    if facts.cpu_s is not None:
        users["own", ""] = what_if.own_s
    users |= {("held", name): seconds for (where, name), seconds in facts.held.items() if where == HERE}
    if not facts.cpu_is_parallel:
        users |= {("cpu", name): seconds for (where, name), seconds in facts.cpu.items() if where == HERE}
    busy = sum(users.values()) * per_s
    (kind, name), most = max(users.items(), key=lambda each: each[1])
    late = what_if.loaded and kind in ("held", "cpu") and (facts.lag_s or 0.0) > most
    if busy < BUSY and not late:
        return None
    if kind == "read":
        return _input_file(case)
    if kind == "write":
        return _disk(case)
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
    evidence.insert(0, f"the collector itself needs {ms(what_if.own_s)} of CPU a rollout")
    change = "share the tasks between two collectors, each with an output of its own, if there are idle cores"
    return Found("event_loop", "other", evidence, [make_advice(change)])


def _gain(case: Case, change: Change, limits: Limits | None = None) -> Gain | None:
    """What a change would give, where it shows what the model takes by itself."""
    return None if case.what_if.model_hidden else case.what_if.gain(limits, change)


def _remark(case: Case) -> str:
    return _HIDDEN if case.what_if.model_hidden else ""


def _held(case: Case, name: str, held_s: float, evidence: list[str]) -> Found:
    facts, what_if = case.facts, case.what_if
    burns, known = facts.held_burns, facts.cpu_s is not None
    doing = "it computes without await" if burns else "it waits without await"
    if not known:
        doing = "whether it computes or waits meanwhile is not known"
    evidence.insert(0, f"{code(name)} is async and kept the event loop for {ms(held_s)} a rollout: {doing}")
    deferred = make_advice(*DEFERRED, _gain(case, without("verify")))
    limits = replace(what_if.limits, places={"threads": 32, **case.places})
    moved = make_advice(
        f"write {code(name)} as def, not async def: then it runs in a thread",
        "",
        _gain(case, in_thread(name), limits) if known and not burns else None,
    )
    if name != "verify":
        advice = [moved]
    elif burns:
        advice = [deferred]
    else:
        advice = [deferred, moved]
    return Found("event_loop", name, evidence, advice, remark=_remark(case))


def _burned(case: Case, name: str, burned_s: float, evidence: list[str]) -> Found:
    evidence.insert(
        0, f"{code(name)} burned {ms(burned_s)} of CPU a rollout in a thread, and threads share one interpreter"
    )
    block = case.blocks.environment
    change = f"start {block.name} with velo run, in two processes, if there are idle cores"
    workers = make_advice(change, block.override("num_workers", 2))
    if name == "verify":
        return Found("verify_cpu", "verify", evidence, [make_advice(*DEFERRED), workers])
    return Found("tool", name, evidence, [workers], what=f"the tool {name.removeprefix('tool:')}")


def _disk(case: Case) -> Found:
    facts = case.facts
    evidence = [f"writing a line took {ms(facts.write_s)}, {_share(facts.write_s * facts.per_s)} of the time in all"]
    change = "write to a faster disk, one of this machine, and copy the file afterwards"
    override = "+output_jsonl_fpath=<a faster disk>/rollouts.jsonl"
    gain = _gain(case, without("write"))
    return Found("disk", "write", evidence, [make_advice(change, override, gain)], remark=_remark(case))


def _input_file(case: Case) -> Found:
    facts = case.facts
    evidence = [
        f"reading a task took {ms(facts.read_s)}, {_share(facts.read_s * facts.tried_per_s)} of the time in all",
        "nothing else runs meanwhile",
    ]
    change = "copy the input to a disk of this machine first, with fewer bytes in a task if it is large"
    override = "+input_jsonl_fpath=<a faster disk>/tasks.jsonl"
    gain = _gain(case, without("read"))
    return Found("slow_input", None, evidence, [make_advice(change, override, gain)], remark=_remark(case))


def _share(share: float) -> str:
    return f"{min(share, 1.0):.0%}"


def served(case: Case) -> Found | None:
    """The processes of a server have one interpreter each, too."""
    facts = case.facts
    where = max(sorted(facts.servers), key=facts.busy, default=HERE)
    if where == HERE or not facts.crowded(where):
        return None
    used: dict[tuple[str, str], float] = {}
    for did, uses in (("burned", facts.cpu), ("held", facts.held)):
        used |= {(did, name): seconds for (place, name), seconds in uses.items() if place == where}
    did, name = max(used, key=lambda each: used[each])
    processes = facts.processes.get(where, 1)
    waits = did == "held" and not facts.shares.get(where)  # a process that computes tells how much of a core it needs
    what = (
        f"burned {ms(used[did, name])} of CPU" if did == "burned" else f"kept the event loop for {ms(used[did, name])}"
    )
    count = "its process was" if processes == 1 else f"its {processes} processes were"
    evidence = [
        f"{code(name)} {what} a rollout in the server {where}",
        f"{count} busy {_share(facts.busy(where))} of the time with it",
    ]
    gain = None
    if waits:
        gain = case.what_if.gain(replace(case.what_if.limits, processes={**facts.processes, where: 2 * processes}))
    advice = [_more_processes(case, where, gain)]
    if did == "held":
        return Found("server", name, evidence, advice, what=f"the server {where}")
    if name == "verify":
        return Found("verify_cpu", "verify", evidence, advice)
    return Found("tool", name, evidence, advice, what=f"the tool {name.removeprefix('tool:')}")


def server(case: Case) -> Found | None:
    """A server whose process has no time left, whatever for: what its code needs of it, and what answering does."""
    facts = case.facts
    shares = {name: share for name, share in facts.shares.items() if _block(case, name).implementation != "local_model"}
    where = max(sorted(shares), key=lambda name: shares[name], default=HERE)
    if where == HERE or shares[where] < _SERVER_BUSY:
        return None
    processes = facts.processes.get(where, 1)
    share = f"{facts.shares[where]:.0%} of a core"
    if processes == 1:
        evidence = [f"the process of {where} needed {share}, and one process runs one thing at a time"]
    else:
        evidence = [f"each of the {processes} processes of {where} needed {share}, and runs one thing at a time"]
    evidence.append(time_spent(facts))
    return Found("server", None, evidence, [_more_processes(case, where)], what=f"the server {where}")


def _more_processes(case: Case, where: str, gain: Gain | None = None) -> Json:
    processes = 2 * case.facts.processes.get(where, 1)
    idle = "" if gain is not None else ", if there are idle cores"
    return make_advice(
        f"run {where} in {processes} processes{idle}", _block(case, where).override("num_workers", processes), gain
    )


def _block(case: Case, name: str) -> Block:
    return case.named.get(name) or Block(name, "<kind>", "<implementation>")
