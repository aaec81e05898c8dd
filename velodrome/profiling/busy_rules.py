"""The rules for a process that had no time left: the collector's own, a server's, or one that computes the model."""

from __future__ import annotations

from velodrome.profiling.case import BUSY, LATER, Case, Explanation, Json, Use, advise, code, ms, time_spent
from velodrome.profiling.stages import HERE
from velodrome.timing.figures import percent

_SERVER_BUSY = 0.8  # of a core, by one process
_CODE_BUSY = 0.6  # of the time, by the user's code on a server
_MODEL_BUSY = 0.8  # of the time
_HEAVY_S = 0.01  # of CPU per rollout: many times what the collector needs for itself
_DEFERRED = advise("leave verification for later and score the file with velo verify", LATER)


def computing_model(case: Case) -> Explanation | None:
    """A model that computes in this process, or on this machine, shares its cores among all calls.

    Or one in this process that never lets go of the event loop, however little CPU a busy machine gives it.
    """
    seen = case.observed
    busy = seen.cpu_s is not None and seen.own_s * seen.tried_per_s >= BUSY and seen.own_s >= _HEAVY_S
    computes = case.blocks.model.implementation == "local_model" or (busy and seen.model_in_process)
    computes = computes and seen.model_use >= _MODEL_BUSY
    blocks = seen.model_in_process and seen.one_by_one and case.interpreter is None
    if not case.model_is_long or not (computes or blocks):
        return None
    where = "in the collector's process" if seen.model_in_process else "on its server's cores"
    evidence = [f"it computes {where}, and had a call to answer {seen.model_use:.0%} of the time"]
    if seen.model_in_process and seen.cpu_share is not None:
        evidence.append(f"the process used {seen.cpu_share:.1f} cores")
    evidence.append(time_spent(seen))
    advice = advise("use a smaller model, or a model server on a machine with more cores or a GPU")
    return Explanation("model", "the model", evidence, [advice], "model", "More rollouts at once share the same cores.")


def busy_interpreter(case: Case) -> Explanation | None:
    """The collector's own process: by what took most of its time."""
    use = case.interpreter
    if use is None:
        return None
    if use.kind in ("read", "write"):
        return _slow_disk(case, reads=use.kind == "read")
    if use.kind == "held":
        return _held_loop(case, use)
    if use.kind == "cpu":
        return _busy_threads(case, use)
    first = f"the collector itself needs {ms(case.prediction.own_s)} of CPU per rollout"
    more = 2 * case.observed.workers
    advice = advise(f"run rollouts in {more} worker processes, if there are idle cores", f"+num_workers={more}")
    return Explanation("event_loop", "the event loop", [first, *_loop(case, use)], [advice], "other")


def _slow_disk(case: Case, *, reads: bool) -> Explanation:
    seen = case.observed
    if reads:
        in_all = percent(min(seen.read_s * seen.tried_per_s, 1.0))
        read = f"reading a task took {ms(seen.read_s)}, {in_all} of the time in all"
        change = "copy the input to a disk of this machine first, with fewer bytes in a task if it is large"
        advice = advise(change, "+input_jsonl_fpath=<a faster disk>/tasks.jsonl")
        return Explanation("slow_input", "reading the tasks", [read, "nothing else runs meanwhile"], [advice])
    in_all = percent(min(seen.write_s * seen.per_s, 1.0))
    change = "write to a faster disk, one of this machine, and copy the file afterwards"
    advice = advise(change, "+output_jsonl_fpath=<a faster disk>/rollouts.jsonl")
    evidence = [f"writing a line took {ms(seen.write_s)}, {in_all} of the time in all"]
    return Explanation("disk", "the disk", evidence, [advice], "write")


def _held_loop(case: Case, use: Use) -> Explanation:
    """Code that is async and does not await."""
    burns = case.observed.held_burns
    doing = "it computes without await" if burns else "it waits without await"
    if case.observed.cpu_s is None:
        doing = "whether it computes or waits meanwhile is not known"
    first = f"{code(use.name)} is async and kept the event loop for {ms(use.seconds)} per rollout: {doing}"
    moved = advise(f"write {code(use.name)} as def, not async def: then it runs in a thread")
    advice = [moved] if use.name != "verify" else [_DEFERRED] if burns else [_DEFERRED, moved]
    return Explanation("event_loop", "the event loop", [first, *_loop(case, use)], advice, use.name)


def _busy_threads(case: Case, use: Use) -> Explanation:
    """Code in threads, which share one interpreter."""
    block = case.blocks.environment
    change = f"run the code of {block.name} in processes of their own, if there are idle cores"
    workers = advise(change, block.override("executor", "process"))
    advice = [_DEFERRED, workers] if use.name == "verify" else [workers]
    burned = f"burned {ms(use.seconds)} of CPU per rollout in a thread, and threads share one interpreter"
    return _burning(use.name, [f"{code(use.name)} {burned}", *_loop(case, use)], advice)


def _loop(case: Case, use: Use) -> list[str]:
    """What became of the event loop."""
    seen = case.observed
    if use.kind == "held" and not seen.held_burns:
        held = sum(seconds for (kind, _), seconds in case.uses.items() if kind == "held")
        held *= seen.tried_per_s / seen.workers
        evidence = [f"the event loop was held {percent(min(held, 1.0))} of the time"]
    else:
        evidence = [f"Python ran {percent(min(case.busy, 1.0))} of the time, and runs one thing at a time"]
    return evidence if seen.lag_s is None else [*evidence, f"the event loop was {ms(seen.lag_s)} late"]


def _burning(name: str, evidence: list[str], advice: list[Json]) -> Explanation:
    """Of verify or of a tool that burns CPU."""
    if name == "verify":
        return Explanation("verify_cpu", "verification CPU", evidence, advice, "verify")
    return Explanation("tool", code(name), evidence, advice, name)


def busy_server(case: Case) -> Explanation | None:
    """A server whose process has no time left, because of the user's code or in all."""
    seen = case.observed
    where = max(sorted({place for place, _ in seen.cpu} - {HERE}), key=seen.busy, default=HERE)
    if where != HERE and seen.busy(where) >= _CODE_BUSY:
        return _busy_server_code(case, where)
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


def _busy_server_code(case: Case, where: str) -> Explanation:
    """Its processes have one interpreter each, too."""
    seen = case.observed
    used = {("burned", name): seconds for (place, name), seconds in seen.cpu.items() if place == where}
    used |= {("held", name): seconds for (place, name), seconds in seen.held.items() if place == where}
    did, name = max(used, key=lambda each: used[each])
    processes = seen.processes.get(where, 1)
    what = f"burned {ms(used[did, name])} of CPU" if did == "burned" else f"kept the loop for {ms(used[did, name])}"
    count = "its process was" if processes == 1 else f"its {processes} processes were"
    evidence = [
        f"{code(name)} {what} per rollout in the server {where}",
        f"{count} busy {percent(min(seen.busy(where), 1.0))} of the time with it",
    ]
    if did == "held":
        return Explanation("server", f"the server {where}", evidence, [_more_processes(case, where)], name)
    return _burning(name, evidence, [_more_processes(case, where)])


def _more_processes(case: Case, where: str) -> Json:
    processes = 2 * case.observed.processes.get(where, 1)
    override = case.block(where).override("num_workers", processes)
    return advise(f"run {where} in {processes} processes, if there are idle cores", override)
