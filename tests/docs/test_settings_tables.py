"""Every setting of a verb stands in its table, with its default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pages import read, rows, section

from velodrome.cli import collect, run, verify
from velodrome.cli.settings import Setting


def shown(default: Any) -> str | None:
    """A default as a table writes it; None where the table has words of its own."""
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:.15g}" if isinstance(default, int | float) else None


def check_settings(table: Sequence[Setting], documented: dict[str, str]) -> None:
    wanted = {setting.name: shown(setting.default) for setting in table}
    assert documented.keys() == {*wanted, "config_paths"}
    defaults = {name: documented[name] for name, value in wanted.items() if value is not None}
    assert defaults == {name: value for name, value in wanted.items() if value is not None}


def test_every_setting_of_collect_is_documented_with_its_default():
    check_settings(collect.SETTINGS, rows(section(read("collect.md"), "Settings")))


def test_every_setting_of_verify_is_documented_with_its_default():
    check_settings(verify.SETTINGS, rows(section(read("collect.md"), "Deferred verification")))


def test_every_setting_of_run_is_documented_with_its_default():
    check_settings(run.SETTINGS, rows(section(read("serving.md"), "Settings")))
