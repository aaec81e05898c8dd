"""A conversation becomes the same bytes as ever: rollouts of every kind, and the answers of five kinds of provider."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from tests.golden.cases import all_lines, stored


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    return list(stored())


def test_real_agents_and_the_answers_of_five_providers_make_the_same_bytes(lines: list[bytes]):
    made = asyncio.run(all_lines())
    assert len(made) == len(lines) > 1500
    different = [(now, before) for now, before in zip(made, lines, strict=True) if now != before]
    assert [orjson.loads(now) for now, _ in different[:1]] == [orjson.loads(before) for _, before in different[:1]]
    assert different == []
