"""An environment that declares no settings takes any key, as in seed 002's fast mode."""

from __future__ import annotations

import pytest

from velodrome import Environment
from velodrome.errors import InputError
from velodrome.resources_servers.calculator.app import Calculator


class FastMode(Environment):
    def verify(self, task, response):
        return {"reward": 1.0 if self.config.get("fast_mode", False) else 0.5}


class Declared(FastMode):
    fast_mode: bool = False


def test_a_class_that_declares_nothing_takes_any_key():
    made = FastMode(fast_mode=True, threads=2)  # type: ignore[call-arg]
    assert made.verify({}, None) == {"reward": 1.0}
    assert (made.config["threads"], FastMode().verify({}, None)) == (2, {"reward": 0.5})


@pytest.mark.parametrize("owner", [Declared, Calculator])
def test_a_class_that_declares_its_settings_and_one_that_ships_refuse_others(owner):
    with pytest.raises(InputError, match="fast_mod"):
        owner(fast_mod=True)


def test_a_misspelt_limit_is_refused_also_where_any_key_is_taken():
    with pytest.raises(InputError, match='unknown key "tool_timeout"; did you mean "tool_timeout_s"'):
        FastMode(tool_timeout=3)  # type: ignore[call-arg]
