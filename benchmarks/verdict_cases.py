"""The runs whose verdict is put to the test: each is bound by one thing, on purpose.

Times are chosen so that the collector's own CPU is small beside them: the machine may be slow or shared.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
    """A model that answers so many at once; the others wait in line."""

    def __init__(self, slots: int, latency_s: float) -> None:
        super().__init__({"answers": ["an answer"]})
        self._slots = asyncio.Semaphore(slots)
        self._takes_s = latency_s

    async def wait(self) -> None:
        async with self._slots:
            await asyncio.sleep(self._takes_s)


class Allowance(ScriptedModel):
    """A model that answers so many a second and the rest with 429, at once."""

    def __init__(self, per_s: float, latency_s: float) -> None:
        super().__init__({"answers": ["an answer"]})
        self._per_s = per_s
        self._takes_s = latency_s
        self._allowed, self._at = 1.0, time.perf_counter()
        self._refused = False

    def next_fault(self) -> Fault | None:
        now = time.perf_counter()
        self._allowed = min(self._allowed + (now - self._at) * self._per_s, 2.0)
        self._at = now
        self._refused = self._allowed < 1.0
        if self._refused:
            return Fault("status", status=429)
        self._allowed -= 1.0
        return None

    async def wait(self) -> None:
        await asyncio.sleep(0.0 if self._refused else self._takes_s)


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
    server: Any = None  # makes the scripted model behind HTTP
    model_settings: str = ""
    by_hand: Mapping[str, str] = field(default_factory=dict)  # what in the code an advice without an override changes
    implementation: str | None = None
    config: str = ""


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

CASES = (
    Case("limit too low", "concurrency", 100, 4, latency_s=0.08),
    Case(
        "max_concurrent too low",
        "model_limit",
        112,
        16,
        server=lambda: Slots(1000, 0.08),
        model_settings="max_concurrent: 4",
    ),
    Case("model saturated", "model", 144, 16, server=lambda: Slots(4, 0.05)),
    Case("verify burns CPU", "verify_cpu", 96, 16, body=_sleeping("def", "burn(0.02)"), latency_s=0.2),
    Case(
        "verify waits", "concurrency", 100, 4, body=_sleeping("async def", "await asyncio.sleep(0.08)"), latency_s=0.01
    ),
    Case("verify holds the loop", "event_loop", 96, 16, body=_sleeping("async def", "time.sleep(0.02)"), latency_s=0.2),
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
    Case("rate limit", "rate_limit", 96, 32, server=lambda: Allowance(50, 0.05)),
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
)


def other_cases(seed: int) -> tuple[Case, ...]:
    """The same bounds with times, limits and numbers of rollouts drawn by chance, and models whose times vary."""
    chance = random.Random(seed)
    found = []
    for case in CASES:
        parallel = max(round(case.parallel * chance.uniform(0.7, 1.6)), 4)
        scale = chance.uniform(0.6, 1.6)
        latency_s = round(case.latency_s * scale * chance.uniform(0.5, 1.0), 3)
        found.append(
            replace(
                case,
                parallel=parallel,
                rollouts=round(chance.uniform(0.9, 1.4) * case.rollouts),
                latency_s=latency_s,
                jitter_s=round(chance.choice((0.1, 0.5, 1.5)) * latency_s, 3),
                body=_scaled(case.body, chance.uniform(0.8, 1.6)),
                server=_other_server(case, chance.uniform(0.7, 1.5)) if case.server else None,
            )
        )
    return tuple(found)


def _scaled(body: str, times: float) -> str:
    return re.sub(r"\((0\.\d+)\)", lambda found: f"({float(found[1]) * times:.4f})", body)


def _other_server(case: Case, times: float) -> Any:
    if case.bound == "rate_limit":
        return lambda: Allowance(50 * times, 0.05 / times)
    if case.bound == "model":
        return lambda: Slots(round(4 * times), 0.05 * times)
    return lambda: Slots(1000, 0.08 * times)
