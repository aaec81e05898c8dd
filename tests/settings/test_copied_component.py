"""What a component that is sent to another process is made from there."""

from __future__ import annotations

import cloudpickle
import pytest

from velodrome import Environment, ScriptedModel
from velodrome.errors import InputError


class Table(Environment):
    """Has an `__init__` of its own."""

    def __init__(self, path: str, *, rows: int = 1) -> None:
        super().__init__()
        self.table = [path] * rows

    def verify(self, task: object, response: object) -> float:
        return 1.0


def test_one_with_an_init_of_its_own_is_made_again_from_its_arguments_if_it_takes_its_settings():
    assert cloudpickle.loads(cloudpickle.dumps(Table("a", rows=2))).table == ["a", "a"]

    class Closed(Table):
        executor = "process"

    with pytest.raises(InputError, match=r"Closed: executor: process makes copies from its settings"):
        Closed("a")


def test_what_is_called_without_waiting_is_not_a_coroutine():
    class Waits(Environment):
        async def setup(self) -> None:  # type: ignore[override]
            pass

    async def answer(request: object) -> str:
        return "never"

    with pytest.raises(InputError, match="Waits: setup is called before anything runs: write `def`"):
        Waits()
    with pytest.raises(InputError, match="function is called without waiting: write `def`"):
        ScriptedModel(function=answer)
