"""The rules for a process that had no time left: the collector's own, or a server's."""

from __future__ import annotations

from velodrome.profiling.attempts import HERE
from velodrome.profiling.phrases import Advice, code, make_advice, ms, share, time_spent
from velodrome.profiling.verdict_case import DEFERRED, Case, Explanation, Use

_SERVER_BUSY = 0.8  # of a core, by one process


def busy_interpreter(case: Case) -> Explanation | None:
    """The collector's own process: by what took most of its time."""
    use = case.interpreter
    if use is None:
        return None
    explain = {"read": _slow_input, "write": _slow_disk, "held": _held_loop, "cpu": _busy_threads, "own": _itself}
    return explain[use.kind](case, use)


def _slow_input(case: Case, use: Use) -> Explanation:
    seen = case.observed
    evidence = [
        f"reading a task took {ms(seen.read_s)}, {share(seen.read_s * seen.tried_per_s)} of the time in all",
        "nothing else runs meanwhile",
    ]
    change = "copy the input to a disk of this machine first, with fewer bytes in a task if it is large"
    advice = make_advice(change, "+input_jsonl_fpath=<a faster disk>/tasks.jsonl")
    return Explanation("slow_input", "reading the tasks", evidence, [advice])


def _slow_disk(case: Case, use: Use) -> Explanation:
    seen = case.observed
    evidence = [f"writing a line took {ms(seen.write_s)}, {share(seen.write_s * seen.per_s)} of the time in all"]
    change = "write to a faster disk, one of this machine, and copy the file afterwards"
    advice = make_advice(change, "+output_jsonl_fpath=<a faster disk>/rollouts.jsonl")
    return Explanation("disk", "the disk", evidence, [advice], "write")


def _held_loop(case: Case, use: Use) -> Explanation:
    """Code that is async and does not await."""
    seen = case.observed
    burns, known = seen.held_burns, seen.cpu_s is not None
    doing = "it computes without await" if burns else "it waits without await"
    if not known:
        doing = "whether it computes or waits meanwhile is not known"
    first = f"{code(use.name)} is async and kept the event loop for {ms(use.seconds)} per rollout: {doing}"
    deferred = make_advice(*DEFERRED)
    moved = make_advice(f"write {code(use.name)} as def, not async def: then it runs in a thread")
    advice = [moved] if use.name != "verify" else [deferred] if burns else [deferred, moved]
    return Explanation("event_loop", "the event loop", [first, *_loop(case, use)], advice, use.name)


def _busy_threads(case: Case, use: Use) -> Explanation:
    """Code in threads, which share one interpreter."""
    block = case.blocks.environment
    burned = f"burned {ms(use.seconds)} of CPU per rollout in a thread"
    change = f"run the code of {block.name} in processes of their own, if there are idle cores"
    workers = make_advice(change, block.override("executor", "process"))
    advice = [make_advice(*DEFERRED), workers] if use.name == "verify" else [workers]
    first = f"{code(use.name)} {burned}, and threads share one interpreter"
    return _burning(use.name, [first, *_loop(case, use)], advice)


def _itself(case: Case, use: Use) -> Explanation:
    first = f"the collector itself needs {ms(case.prediction.own_s)} of CPU per rollout"
    more = 2 * case.observed.workers
    advice = make_advice(f"run rollouts in {more} worker processes, if there are idle cores", f"+num_workers={more}")
    return Explanation("event_loop", "the event loop", [first, *_loop(case, use)], [advice], "other")


def _loop(case: Case, use: Use) -> list[str]:
    """What became of the event loop."""
    seen = case.observed
    if use.kind == "held" and not seen.held_burns:
        held = sum(seconds for (kind, _), seconds in case.uses.items() if kind == "held")
        held *= seen.tried_per_s / seen.workers
        evidence = [f"the event loop was held {share(held)} of the time"]
    else:
        evidence = [f"Python ran {share(case.busy)} of the time, and runs one thing at a time"]
    return evidence if seen.lag_s is None else [*evidence, f"the event loop was {ms(seen.lag_s)} late"]


def _burning(name: str, evidence: list[str], advice: list[Advice]) -> Explanation:
    """Of verify or of a tool that burns CPU."""
    if name == "verify":
        return Explanation("verify_cpu", "verification CPU", evidence, advice, "verify")
    return Explanation("tool", code(name), evidence, advice, name)


def busy_server_code(case: Case) -> Explanation | None:
    """The user's code on a server: its processes have one interpreter each, too."""
    seen = case.observed
    if not any(map(seen.crowded, seen.servers)):
        return None
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
    advice = [_more_processes(case, where)]
    if did == "held":
        return Explanation("server", f"the server {where}", evidence, advice, name)
    return _burning(name, evidence, advice)


def busy_server(case: Case) -> Explanation | None:
    """A server whose process has no time left, whatever for: its code, and answering."""
    seen = case.observed
    names = [name for name in sorted(seen.shares) if case.block(name).implementation != "local_model"]
    where = max(names, key=lambda name: seen.shares[name], default=HERE)
    if seen.shares.get(where, 0.0) < _SERVER_BUSY:
        return None
    processes = seen.processes.get(where, 1)
    needed = f"needed {seen.shares[where]:.0%} of a core"
    first = f"the process of {where} {needed}, and one process runs one thing at a time"
    if processes > 1:
        first = f"each of the {processes} processes of {where} {needed}, and runs one thing at a time"
    return Explanation("server", f"the server {where}", [first, time_spent(seen)], [_more_processes(case, where)])


def _more_processes(case: Case, where: str) -> Advice:
    processes = 2 * case.observed.processes.get(where, 1)
    override = case.block(where).override("num_workers", processes)
    return make_advice(f"run {where} in {processes} processes, if there are idle cores", override)
