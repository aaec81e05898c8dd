"""Equal calls of pure code are computed once; failures are not kept, and what is kept is bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from velodrome import Environment, tool
from velodrome.errors import VerifyError
from velodrome.resources_servers.pure_results import PureResults, response_content
from velodrome.timing.spans import root


class Counts(Environment):
    """Pure but for what a test counts."""

    log: Any = None

    @tool
    def double(self, number: int) -> int:
        """Double."""
        self.log.append(number)
        if number < 0:
            raise ValueError("too small")
        return 2 * number

    async def verify(self, task: dict[str, Any], response: Any) -> dict[str, Any]:
        self.log.append(response.text)
        await asyncio.sleep(0)
        if task.get("fails"):
            raise RuntimeError("no")
        return {"reward": float(task["expected"] in response.text), "words": response.text.split()}


def answer(text: str, number: int, **fields: Any) -> dict[str, Any]:
    """A response as a server sends it, with the ids and times it makes up."""
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": f"call_{number}", "output": "1"}
    message = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
    content = [{"type": "output_text", "text": text}]
    items = [call, output, {**message, "content": content}]
    return {"id": f"resp_{number}", "created_at": number, "output": items, **fields}


def environment(**settings: Any) -> Counts:
    made = Counts(cache=True, **settings)
    made.log = []
    return made


def test_equal_content_is_verified_once_whatever_the_ids_and_each_gets_a_copy():
    made = environment()

    async def main() -> list[dict[str, Any]]:
        scores = []
        for number in range(3):
            scores.append(await made.score("", {"id": "a", "expected": "yes"}, answer("yes", number)))
            scores[-1]["words"].append("changed")
        return scores

    with root("rollout") as spans:
        assert asyncio.run(main()) == [{"reward": 1.0, "words": ["yes", "changed"]}] * 3
    assert made.log == ["yes"]
    assert spans.counts == {"cache_hits": 2}


def test_equal_calls_at_the_same_moment_are_one():
    made = environment()

    async def main() -> list[dict[str, Any]]:
        calls = (made.score("", {"expected": "yes"}, answer("yes", number)) for number in range(5))
        return list(await asyncio.gather(*calls))

    assert asyncio.run(main()) == [{"reward": 1.0, "words": ["yes"]}] * 5
    assert made.log == ["yes"]


def test_other_content_is_another_call():
    made = environment()

    async def main() -> None:
        await made.score("", {"expected": "yes"}, answer("yes", 1))
        await made.score("", {"expected": "no"}, answer("yes", 1))
        await made.score("", {"expected": "yes"}, answer("yes it is", 1))
        await made.score("", {"expected": "yes"}, answer("yes", 1, usage={"output_tokens": 7}))

    asyncio.run(main())
    assert len(made.log) == 4


def test_which_call_a_result_belongs_to_is_content_though_its_id_is_not():
    def pair(first: str, second: str) -> dict[str, Any]:
        return {"output": [{"call_id": first}, {"call_id": second}, {"call_id": first}]}

    assert response_content(pair("x", "y")) == response_content(pair("p", "q")) != response_content(pair("x", "x"))


def test_failures_are_computed_again_also_by_those_that_waited_for_one():
    made = environment()

    async def main() -> list[Any]:
        calls = (made.score("", {"fails": True}, answer("yes", number)) for number in range(3))
        return list(await asyncio.gather(*calls, return_exceptions=True))

    assert [type(each) for each in asyncio.run(main())] == [VerifyError] * 3
    assert made.log == ["yes"] * 3


def test_a_call_that_is_cancelled_leaves_the_others_to_compute():
    made = environment()

    async def main() -> dict[str, Any]:
        first = asyncio.create_task(made.score("", {"expected": "yes"}, answer("yes", 1)))
        second = asyncio.create_task(made.score("", {"expected": "yes"}, answer("yes", 2)))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(main())["reward"] == 1.0
    assert made.log == ["yes", "yes"]


@pytest.mark.parametrize("executor", ["inline", "thread"])
def test_a_tools_result_is_used_again_but_not_what_the_model_is_told_of_a_failure(executor: Any):
    made = environment(executor=executor)

    async def main() -> list[str]:
        return [await made.call("", "double", {"number": number}) for number in (2, 2, -1, -1, 3)]

    assert asyncio.run(main()) == ["4", "4", "error: too small", "error: too small", "6"]
    assert made.log == [2, -1, -1, 3]


class Process(Environment):
    def setup(self) -> None:
        self.calls = 0

    def verify(self, task: Any, response: Any) -> dict[str, Any]:
        self.calls += 1
        return {"reward": 1.0, "calls": self.calls}


def test_in_a_process_it_is_computed_once_too():
    async def main() -> list[Any]:
        made = Process(executor="process", cache=True, worker_processes=1)
        scores = [(await made.score("", {"id": name}, answer("x", 1)))["calls"] for name in ("a", "a", "b", "a")]
        await made.aclose()
        return scores

    assert asyncio.run(main()) == [1, 1, 2, 1]


def test_what_was_not_used_for_longest_goes_first():
    async def main() -> tuple[list[int], int]:
        results, computed = PureResults(most_bytes=700), []

        async def compute(key: int) -> bytes:
            computed.append(key)
            return b"x" * 100

        for key in (1, 2, 1, 3, 1, 2):  # two have room
            await results.result(key, lambda key=key: compute(key))  # type: ignore[misc]
        return computed, results.hits

    assert asyncio.run(main()) == ([1, 2, 3, 2], 2)


def test_what_is_not_json_is_computed_each_time():
    async def main() -> int:
        results, computed = PureResults(), []

        async def compute() -> None:
            computed.append(1)

        for _ in range(2):
            await results.result(object(), compute)
        return len(computed)

    assert asyncio.run(main()) == 2
