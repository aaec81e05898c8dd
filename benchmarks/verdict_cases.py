"""The runs whose verdict is put to the test: each is bound by one thing, on purpose.

Times are chosen so that the collector's own CPU is small beside them: the machine may be slow or shared. Almost all of
them are sleeps; only the two cases with `burn` and the local model need cores.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.responses_api_models.scripted_model.faults import Fault

AGENT = """
environment:
  resources_servers:
    {implementation}: {{entrypoint: app.py{settings}}}
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: environment}}
      model_server: {{type: responses_api_models, name: policy_model}}
"""
IN_PROCESS = """
policy_model:
  responses_api_models:
    scripted_model: {{answers: {answers}, latency_s: {latency_s}, jitter_s: {jitter_s}}}
"""
BEHIND_HTTP = """
policy_model:
  responses_api_models:
    openai_model:
      {{openai_base_url: "{url}", openai_model: m, endpoint: responses, backoff_s: 0.1, max_retries: 9, {settings}}}
"""
LOCAL = """
policy_model:
  responses_api_models:
    local_model: {entrypoint: app.py}
"""
APP = """
import asyncio
import time
from velodrome import Environment, tool


def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Case(Environment):
{body}
"""
QUICK_VERIFY = """
    async def verify(self, task, response):
        return {"reward": 1.0}
"""
TOOL = '[{{tool_calls: [{{name: look, arguments: {{}}}}]}}, "{{tool_result}}"]'.replace("{{", "{").replace("}}", "}")


class Slots(ScriptedModel):
    """A model that answers so many at once; the others wait in line. Its times vary by the share `varies`."""

    def __init__(self, slots: int, latency_s: float, varies: float = 0.0) -> None:
        super().__init__(answers=["an answer"])
        self._varies = varies
        self._slots = asyncio.Semaphore(slots)
        self._takes_s = latency_s

    async def wait(self) -> None:
        async with self._slots:
            await asyncio.sleep(self._takes_s * self._jitter_random.uniform(1 - self._varies, 1 + self._varies))


class Shared(ScriptedModel):
    """A model that shares its strength: beyond so many at once, each call takes the longer the more there are."""

    def __init__(self, at_once: int, latency_s: float) -> None:
        super().__init__(answers=["an answer"])
        self._at_once = at_once
        self._takes_s = latency_s
        self._running = 0

    async def wait(self) -> None:
        self._running += 1
        left_s = self._takes_s * self._jitter_random.uniform(0.7, 1.3)
        while left_s > 0:
            step_s = min(left_s, self._takes_s / 8)
            await asyncio.sleep(step_s * max(self._running / self._at_once, 1.0))
            left_s -= step_s
        self._running -= 1


class Allowance(ScriptedModel):
    """A model that answers so many a second and the rest with 429, at once."""

    def __init__(self, per_s: float, latency_s: float, retry_after_s: float | None = None) -> None:
        super().__init__(answers=["an answer"])
        self._per_s = per_s
        self._takes_s = latency_s
        self._refusal = Fault(kind="status", status=429, retry_after_s=retry_after_s)
        self._allowed, self._at = 1.0, time.perf_counter()
        self._refused = False

    def next_fault(self) -> Fault | None:
        now = time.perf_counter()
        self._allowed = min(self._allowed + (now - self._at) * self._per_s, 2.0)
        self._at = now
        self._refused = self._allowed < 1.0
        if self._refused:
            return self._refusal
        self._allowed -= 1.0
        return None

    async def wait(self) -> None:
        await asyncio.sleep(0.0 if self._refused else self._takes_s)


class Moody(ScriptedModel):
    """A model that answers a share of calls with 429 and another with 500, however many there are."""

    def __init__(self, share: float, latency_s: float) -> None:
        refused = Fault(kind="status", status=429, retry_after_s=1.0, rate=share)
        super().__init__(answers=["an answer"], faults=[refused, Fault(kind="status", status=500, rate=share)])
        self._takes_s = latency_s
        self._failed = False

    def next_fault(self) -> Fault | None:
        fault = super().next_fault()
        self._failed = fault is not None
        return fault

    async def wait(self) -> None:
        if not self._failed:
            late_s = 4.0 if self._jitter_random.random() < 0.05 else 0.0
            await asyncio.sleep(self._takes_s * self._jitter_random.uniform(0.05, 0.4) / 0.225 + late_s)


@dataclass(frozen=True)
class Case:
    """One run: what it is bound by, and everything that makes it so."""

    name: str
    bound: str
    rollouts: int
    parallel: int
    body: str = QUICK_VERIFY
    settings: str = ""
    latency_s: float = 0.1
    jitter_s: float = 0.01
    answers: str = "[an answer]"
    server: partial[ScriptedModel] | None = None  # makes the scripted model behind HTTP
    model_settings: str = ""
    by_hand: Mapping[str, str] = field(default_factory=dict)  # what in the code an advice without an override changes
    implementation: str | None = None
    config: str = ""
    overrides: tuple[str, ...] = ()
    served: bool = False
    local: bool = False
    read_s: float = 0.0  # that a disk takes for one line
    write_s: float = 0.0


def _sleeping(kind: str, call: str) -> str:
    return f"""
    {kind} verify(self, task, response):
        {call}
        return {{"reward": 1.0}}
"""


def _tool(kind: str, call: str) -> str:
    return f'''
    @tool
    {kind} look(self) -> str:
        """Look it up."""
        {call}
        return "found"
{QUICK_VERIFY}'''


JUDGE = """
judge_model:
  responses_api_models:
    scripted_model: {answers: ["[[DIFFERENT]]"], latency_s: 0.1}
"""

SLOW_TASK = _sleeping("async def", 'await asyncio.sleep(3.0 if task["id"] == "30" else 0.01)')

LOADS = (8, 24, 64)
ALLOWED = partial(Allowance, per_s=25, latency_s=0.2)
ASKS_TO_WAIT = partial(Allowance, per_s=25, latency_s=0.2, retry_after_s=1.0)
MOODY = partial(Moody, share=0.05, latency_s=0.225)

CASES = (
    Case("limit too low", "concurrency", 160, 8, latency_s=0.06, jitter_s=0.06),
    Case(
        "verify waits", "concurrency", 160, 8, body=_sleeping("async def", "await asyncio.sleep(0.08)"), latency_s=0.01
    ),
    Case(
        "connection limit",
        "connection_limit",
        120,
        60,
        server=partial(Slots, slots=1000, latency_s=0.1),
        overrides=("+global_aiohttp_connector_limit_per_host=4",),
    ),
    Case(
        "half the connections",
        "connection_limit",
        160,
        16,
        server=partial(Slots, slots=1000, latency_s=0.1, varies=0.6),
        overrides=("+global_aiohttp_connector_limit=8",),
    ),
    Case(
        "connections to servers",
        "connection_limit",
        120,
        32,
        overrides=("+global_aiohttp_connector_limit_per_host=4",),
        served=True,
    ),
    Case(
        "max_concurrent too low",
        "model_limit",
        160,
        16,
        server=partial(Slots, slots=1000, latency_s=0.08, varies=0.6),
        model_settings="max_concurrent: 8",
    ),
    *(Case(f"rate limit, {parallel} at once", "rate_limit", 250, parallel, server=ALLOWED) for parallel in LOADS),
    *(
        Case(f"rate limit with Retry-After, {parallel} at once", "rate_limit", 250, parallel, server=ASKS_TO_WAIT)
        for parallel in LOADS
    ),
    *(
        Case(f"429s at any load, {parallel} at once", "concurrency", 20 * parallel, parallel, server=MOODY)
        for parallel in LOADS
    ),
    Case("model with a queue", "model", 144, 16, server=partial(Slots, slots=4, latency_s=0.05)),
    Case("model slower with load", "model", 192, 32, server=partial(Shared, at_once=4, latency_s=0.04)),
    Case("model in the process", "model", 24, 4, local=True),
    Case(
        "tool holds the GIL", "tool", 96, 16, body=_tool("def", "burn(0.03)"), latency_s=0.1, jitter_s=0.1, answers=TOOL
    ),
    Case("verify burns CPU", "verify_cpu", 96, 16, body=_sleeping("def", "burn(0.02)"), latency_s=0.2),
    Case(
        "few threads",
        "threads",
        96,
        16,
        body=_tool("def", "time.sleep(0.05)"),
        settings=", threads: 2",
        latency_s=0.05,
        answers=TOOL,
    ),
    Case("verify holds the loop", "event_loop", 96, 16, body=_sleeping("async def", "time.sleep(0.02)"), latency_s=0.2),
    Case(
        "tool holds the loop",
        "event_loop",
        96,
        16,
        body=_tool("async def", "time.sleep(0.02)"),
        latency_s=0.1,
        answers=TOOL,
        by_hand={"async def look": "def look"},
    ),
    Case(
        "judge's limit",
        "judge_limit",
        96,
        16,
        implementation="math_with_judge",
        settings=(
            ", fast_mode: true, should_use_judge: true, judge_max_concurrent: 4, "
            "judge_model_server: {type: responses_api_models, name: judge_model}"
        ),
        config=JUDGE,
    ),
    Case("slow disk", "disk", 96, 16, write_s=0.03),
    Case("slow server worker", "server", 120, 16, body=_sleeping("async def", "time.sleep(0.04)"), served=True),
    Case("too few tasks", "input", 36, 32, latency_s=0.3),
    Case("one straggler", "straggler", 80, 8, body=SLOW_TASK, by_hand={"3.0 if": "0.01 if"}),
    Case("slow input", "slow_input", 96, 16, read_s=0.03),
)


def other_cases(seed: int) -> tuple[Case, ...]:
    """The same bounds with other times, limits and numbers of rollouts, drawn by chance: no rule was tuned on them."""
    return tuple(_other(case, random.Random(f"{seed} {case.name}")) for case in CASES)


def _other(case: Case, chance: random.Random) -> Case:
    wider = chance.uniform(0.75, 1.6)
    parallel = max(round(case.parallel * wider), 4)
    narrower = parallel / case.parallel * chance.uniform(0.6, 1.0)  # so that what was too narrow still is
    latency_s = case.latency_s * chance.uniform(0.5, 1.6)
    seconds = chance.uniform(0.8, 1.6)
    return replace(
        case,
        parallel=parallel,
        rollouts=round(case.rollouts / case.parallel * parallel * chance.uniform(0.9, 1.2)),
        latency_s=latency_s,
        jitter_s=latency_s * chance.choice((0.1, 0.5, 1.5)),
        body=re.sub(r"\((0\.\d+)\)", lambda call: f"({float(call[1]) * seconds:.4f})", case.body),
        settings=_narrowed(case.settings, narrower),
        model_settings=_narrowed(case.model_settings, narrower),
        overrides=tuple(_narrowed(each, narrower) for each in case.overrides),
        read_s=case.read_s * seconds,
        write_s=case.write_s * seconds,
        server=case.server and partial(case.server.func, **_drawn(case.server.keywords, chance, narrower)),
    )


def _narrowed(text: str, times: float) -> str:
    limit = r"((?:limit|limit_per_host|max_concurrent|threads)(?:=|: ))(\d+)"
    return re.sub(limit, lambda each: f"{each[1]}{max(round(int(each[2]) * times), 1)}", text)


def _drawn(keywords: Mapping[str, Any], chance: random.Random, narrower: float) -> dict[str, Any]:
    times = {"latency_s": chance.uniform(0.5, 1.6), "per_s": chance.uniform(0.3, 0.8)}
    drawn = {name: value * times.get(name, 1.0) for name, value in keywords.items()}
    return drawn | {name: max(round(keywords[name] * narrower), 1) for name in ("slots", "at_once") if name in keywords}
