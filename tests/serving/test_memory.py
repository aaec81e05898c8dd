"""Ten thousand rollouts' worth of sessions through a real resources server: none is left, and memory stays flat."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support import running
from velodrome import http
from velodrome.serving.remote import HttpResources

IN_FLIGHT = 64
WARM_UP, REST = 2_000, 8_000
CONFIG = "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml"
RESPONSE = {"id": "r", "object": "response", "output": []}


async def rollouts(url: str, numbers: range) -> list[float]:
    """The rewards of sessions that are seeded, used, verified and closed."""
    resources = HttpResources(url)
    shared = iter(numbers)
    rewards = []

    async def worker() -> None:
        for number in shared:
            task: dict[str, Any] = {"initial_count": number, "expected_count": number + 3, "padding": "x" * 2000}
            session = await resources.open(task)
            await resources.call(session, "increment_counter", {"count": 3})
            rewards.append((await resources.score(session, task, RESPONSE))["reward"])
            await resources.close(session)

    try:
        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    finally:
        await http.close_shared()
    return rewards


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


@pytest.mark.slow
@pytest.mark.chaos
def test_ten_thousand_rollouts_leave_no_session_behind_and_memory_flat(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(running.MODEL)
    with running.Session(tmp_path, f"+config_paths=[{CONFIG},model.yaml]") as session:
        server = session.up().instances()["example_session_state_mgmt"]
        rewards = asyncio.run(rollouts(server["url"], range(WARM_UP)))
        warm_mb = resident_mb(server["pid"])
        rewards += asyncio.run(rollouts(server["url"], range(WARM_UP, WARM_UP + REST)))
        grown_mb = resident_mb(server["pid"]) - warm_mb
        status, report = running.http(f"{server['url']}/health")
        same = session.instances()["example_session_state_mgmt"]

    assert rewards == [1.0] * (WARM_UP + REST)
    assert (status, report["open_sessions"]) == (200, 0)
    assert (same["pid"], same["restarts"]) == (server["pid"], 0)
    assert grown_mb < 15, f"from {warm_mb:.1f} MB"
