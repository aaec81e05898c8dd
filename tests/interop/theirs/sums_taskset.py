"""A taskset of verifiers 0.4: sums, two tools (one of which counts), a reward and a metric."""

from __future__ import annotations

from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["SumsTaskset"]


class SumsState(vf.State):
    """What a rollout did."""

    calls: int = 0


class SumsToolset(vf.Toolset[vf.ToolsetConfig, SumsState]):
    """Two tools."""

    TOOL_PREFIX = "sums"

    @vf.tool
    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.state.calls += 1
        return a + b

    @vf.tool
    async def calls(self) -> int:
        """How often add was called."""
        return self.state.calls


class SumsData(vf.TaskData):
    """A sum."""

    answer: int


class SumsTaskConfig(vf.TaskConfig):
    """The tool server."""

    tools: vf.ToolsetConfig = vf.ToolsetConfig()


class SumsTask(vf.Task[SumsData, SumsState, SumsTaskConfig]):
    """Half of the reward for the answer, half for using the tool."""

    @classmethod
    def toolsets(cls, config: SumsTaskConfig) -> list[vf.Toolset]:
        """The tool server of a rollout."""
        return [SumsToolset(config.tools)]

    @vf.reward(weight=0.5)
    async def right(self, trace: vf.Trace) -> float:
        """Whether the last reply ends with the answer."""
        return float(trace.last_reply.endswith(f" {self.data.answer}"))

    @vf.reward(weight=0.5)
    async def used(self, trace: vf.Trace) -> float:
        """Whether the tool was used."""
        return float(trace.state.calls > 0)

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        """How many messages the model wrote."""
        return float(trace.num_turns)


class SumsConfig(vf.TasksetConfig):
    """How many sums."""

    count: int = 3
    task: SumsTaskConfig = SumsTaskConfig()


class SumsTaskset(vf.Taskset[SumsTask, SumsConfig]):
    """1 + 10, 2 + 10, …"""

    def load(self) -> Iterator[SumsTask]:
        """Every sum as a task."""
        for number in range(1, self.config.count + 1):
            data = SumsData(
                prompt=f"What is {number} + 10?",
                system_prompt="Use the tool.",
                answer=number + 10,
                name=f"sum-{number}",
            )
            yield SumsTask(data, self.config.task)
