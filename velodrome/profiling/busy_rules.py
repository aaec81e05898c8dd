"""The rules for a process that was fully busy: the collector, a server, or a process that computes the model."""

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
    """Explain a model that computes on this machine, so that all calls share its cores.

    This includes a model in this process that blocks the event loop, even if a busy machine gives it little CPU.
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
    """Explain a busy collector process by what used most of its time."""
    use = case.interpreter
    if use is None:
        return None
    if use.kind in ("read", "write"):
        return _slow_disk(case, reads=use.kind == "read")
    if use.kind == "held":
        return _held_loop(case, use)
    if use.kind == "cpu":
        return _busy_threads(case, use)
    evidence = f"the collector itself needs {ms(case.prediction.own_s)} of CPU per rollout"
    worker_count = 2 * case.observed.workers
    advice = advise(
        f"run rollouts in {worker_count} worker processes, if there are idle cores", f"+num_workers={worker_count}"
    )
    return Explanation("event_loop", "the event loop", [evidence, *_loop(case, use)], [advice], "other")


def _slow_disk(case: Case, *, reads: bool) -> Explanation:
    seen = case.observed
    if reads:
        share = percent(min(seen.read_s * seen.tried_per_s, 1.0))
        text = f"reading a task took {ms(seen.read_s)}, {share} of the time in all"
        change = "copy the input to a disk of this machine first, with fewer bytes in a task if it is large"
        advice = advise(change, "+input_jsonl_fpath=<a faster disk>/tasks.jsonl")
        return Explanation("slow_input", "reading the tasks", [text, "nothing else runs meanwhile"], [advice])
    share = percent(min(seen.write_s * seen.per_s, 1.0))
    change = "write to a faster disk, one of this machine, and copy the file afterwards"
    advice = advise(change, "+output_jsonl_fpath=<a faster disk>/rollouts.jsonl")
    evidence = [f"writing a line took {ms(seen.write_s)}, {share} of the time in all"]
    return Explanation("disk", "the disk", evidence, [advice], "write")


def _held_loop(case: Case, use: Use) -> Explanation:
    """Explain an async function that blocks the event loop."""
    computes = case.observed.held_burns
    doing = "it computes without await" if computes else "it waits without await"
    if case.observed.cpu_s is None:
        doing = "whether it computes or waits meanwhile is not known"
    evidence = f"{code(use.name)} is async and kept the event loop for {ms(use.seconds)} per rollout: {doing}"
    to_thread = advise(f"write {code(use.name)} as def, not async def: then it runs in a thread")
    advice = [to_thread] if use.name != "verify" else [_DEFERRED] if computes else [_DEFERRED, to_thread]
    return Explanation("event_loop", "the event loop", [evidence, *_loop(case, use)], advice, use.name)


def _busy_threads(case: Case, use: Use) -> Explanation:
    """Explain busy threads, which share one interpreter."""
    block = case.blocks.environment
    change = f"run the code of {block.name} in processes of their own, if there are idle cores"
    workers = advise(change, block.override("executor", "process"))
    advice = [_DEFERRED, workers] if use.name == "verify" else [workers]
    text = f"burned {ms(use.seconds)} of CPU per rollout in a thread, and threads share one interpreter"
    return _burning(use.name, [f"{code(use.name)} {text}", *_loop(case, use)], advice)


def _loop(case: Case, use: Use) -> list[str]:
    """Evidence of how busy the event loop was."""
    seen = case.observed
    if use.kind == "held" and not seen.held_burns:
        held = sum(seconds for (kind, _), seconds in case.uses.items() if kind == "held")
        held *= seen.tried_per_s / seen.workers
        evidence = [f"the event loop was held {percent(min(held, 1.0))} of the time"]
    else:
        evidence = [f"Python ran {percent(min(case.busy, 1.0))} of the time, and runs one thing at a time"]
    return evidence if seen.lag_s is None else [*evidence, f"the event loop was {ms(seen.lag_s)} late"]


def _burning(name: str, evidence: list[str], advice: list[Json]) -> Explanation:
    """The explanation for verify or a tool that burns CPU."""
    if name == "verify":
        return Explanation("verify_cpu", "verification CPU", evidence, advice, "verify")
    return Explanation("tool", code(name), evidence, advice, name)


def busy_server(case: Case) -> Explanation | None:
    """Explain a server whose processes were fully busy, with the user's code or in total."""
    seen = case.observed
    server = max(sorted({place for place, _ in seen.cpu} - {HERE}), key=seen.busy, default=HERE)
    if server != HERE and seen.busy(server) >= _CODE_BUSY:
        return _busy_server_code(case, server)
    names = [name for name in sorted(seen.shares) if case.block(name).implementation != "local_model"]
    server = max(names, key=lambda name: seen.shares[name], default=HERE)
    if seen.shares.get(server, 0.0) < _SERVER_BUSY:
        return None
    processes = seen.processes.get(server, 1)
    share = f"needed {seen.shares[server]:.0%} of a core"
    text = f"the process of {server} {share}, and one process runs one thing at a time"
    if processes > 1:
        text = f"each of the {processes} processes of {server} {share}, and runs one thing at a time"
    return Explanation("server", f"the server {server}", [text, time_spent(seen)], [_more_processes(case, server)])


def _busy_server_code(case: Case, server: str) -> Explanation:
    """Explain a server that was busy with the user's code: each of its processes has one interpreter."""
    seen = case.observed
    seconds_of = {("burned", name): seconds for (place, name), seconds in seen.cpu.items() if place == server}
    seconds_of |= {("held", name): seconds for (place, name), seconds in seen.held.items() if place == server}
    kind, name = max(seconds_of, key=lambda each: seconds_of[each])
    processes = seen.processes.get(server, 1)
    text = (
        f"burned {ms(seconds_of[kind, name])} of CPU"
        if kind == "burned"
        else f"kept the loop for {ms(seconds_of[kind, name])}"
    )
    count = "its process was" if processes == 1 else f"its {processes} processes were"
    evidence = [
        f"{code(name)} {text} per rollout in the server {server}",
        f"{count} busy {percent(min(seen.busy(server), 1.0))} of the time with it",
    ]
    if kind == "held":
        return Explanation("server", f"the server {server}", evidence, [_more_processes(case, server)], name)
    return _burning(name, evidence, [_more_processes(case, server)])


def _more_processes(case: Case, server: str) -> Json:
    processes = 2 * case.observed.processes.get(server, 1)
    override = case.block(server).override("num_workers", processes)
    return advise(f"run {server} in {processes} processes, if there are idle cores", override)
