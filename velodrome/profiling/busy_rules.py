"""The rules for a process that had no time left: the collector's own, or a server's."""

from __future__ import annotations

from collections.abc import Callable

from velodrome.profiling.phrases import (
    Advice,
    code,
    make_advice,
    ms,
    share,
    time_spent,
)
from velodrome.profiling.prediction import Gain, in_thread, without
from velodrome.profiling.replay import HERE
from velodrome.profiling.verdict_case import DEFERRED, Case, Explanation

_SERVER_BUSY = 0.8  # of a core, by one process


def interpreter_is_used_to(kind: str) -> Callable[[Case], bool]:
    return lambda case: case.interpreter is not None and case.interpreter.kind == kind


def faster_input(case: Case) -> Explanation:
    seen = case.observed
    evidence = [
        f"reading a task took {ms(seen.read_s)}, {share(seen.read_s * seen.tried_per_s)} of the time in all",
        "nothing else runs meanwhile",
    ]
    change = "copy the input to a disk of this machine first, with fewer bytes in a task if it is large"
    override = "+input_jsonl_fpath=<a faster disk>/tasks.jsonl"
    return Explanation(evidence, [make_advice(change, override, case.gain(without("read")))], remark=case.hidden)


def faster_disk(case: Case) -> Explanation:
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


def out_of_the_loop(case: Case) -> Explanation:
    """Code that is async and does not await."""
    seen, use = case.observed, case.interpreter
    assert use is not None
    burns, known = seen.held_burns, seen.cpu_s is not None
    doing = "it computes without await" if burns else "it waits without await"
    if not known:
        doing = "whether it computes or waits meanwhile is not known"
    first = f"{code(use.name)} is async and kept the event loop for {ms(use.seconds)} per rollout: {doing}"
    inside = [name for name, part in seen.inside.items() if part == "verify"]
    deferred = make_advice(*DEFERRED, case.gain(without("verify", *inside)))
    capacity = case.prediction.capacity._replace(places={"threads": 32, **case.places})
    gain = case.gain(in_thread(use.name), capacity) if known and not burns else None
    moved = make_advice(f"write {code(use.name)} as def, not async def: then it runs in a thread", "", gain)
    advice = [moved] if use.name != "verify" else [deferred] if burns else [deferred, moved]
    return Explanation([first, *_loop_evidence(case)], advice, use.name, case.hidden)


def more_interpreters(case: Case) -> Explanation:
    """Code in threads, which share one interpreter."""
    use, block = case.interpreter, case.blocks.environment
    assert use is not None
    first = (
        f"{code(use.name)} burned {ms(use.seconds)} of CPU per rollout in a thread, and threads share one interpreter"
    )
    change = f"start {block.name} with velo run, in two processes, if there are idle cores"
    workers = make_advice(change, block.override("num_workers", 2))
    advice = [make_advice(*DEFERRED), workers] if use.name == "verify" else [workers]
    return _explain_code(use.name, [first, *_loop_evidence(case)], advice)


def _explain_code(name: str, evidence: list[str], advice: list[Advice]) -> Explanation:
    """Of verify or of a tool that burns CPU."""
    if name == "verify":
        return Explanation(evidence, advice, "verify")
    return Explanation(evidence, advice, name, bound="tool", what=code(name))


def two_collectors(case: Case) -> Explanation:
    first = f"the collector itself needs {ms(case.prediction.own_s)} of CPU per rollout"
    change = "share the tasks between two collectors, each with an output of its own, if there are idle cores"
    return Explanation([first, *_loop_evidence(case)], [make_advice(change)], "other")


def server_runs_code(case: Case) -> bool:
    """The processes of a server have one interpreter each, too."""
    return any(map(case.observed.crowded, case.observed.servers))


def more_processes(case: Case) -> Explanation:
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


def server_is_busy(case: Case) -> bool:
    """A server whose process has no time left, whatever for: its code, and answering."""
    return case.observed.shares.get(_busiest_server(case), 0.0) >= _SERVER_BUSY


def more_workers(case: Case) -> Explanation:
    seen, where = case.observed, _busiest_server(case)
    processes = seen.processes.get(where, 1)
    needed = f"needed {seen.shares[where]:.0%} of a core"
    first = f"the process of {where} {needed}, and one process runs one thing at a time"
    if processes > 1:
        first = f"each of the {processes} processes of {where} {needed}, and runs one thing at a time"
    advice = [_processes_advice(case, where)]
    return Explanation([first, time_spent(seen)], advice, what=f"the server {where}")
