"""Every setting of a verb stands in its table, with its default."""

from __future__ import annotations

from typing import Any

from pages import read, rows, section

from velodrome.cli import collect, run, verify
from velodrome.settings.model import Settings as VerbSettings
from velodrome.settings.model import ordered_fields


def shown(default: Any) -> str | None:
    """A default as a table writes it; None where the table has words of its own."""
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:.15g}" if isinstance(default, int | float) else None


def defaults_of(table: type[VerbSettings]) -> dict[str, Any]:
    """The settings of a verb with their defaults."""
    fields = ordered_fields(table)
    return {field.alias or name: field.get_default(call_default_factory=True) for name, field in fields.items()}


def check_settings(table: type[VerbSettings], documented: dict[str, str]) -> None:
    wanted = {name: shown(default) for name, default in defaults_of(table).items()}
    assert documented.keys() == {*wanted, "config_paths"}
    defaults = {name: documented[name] for name, value in wanted.items() if value is not None}
    assert defaults == {name: value for name, value in wanted.items() if value is not None}


def test_every_setting_of_collect_is_documented_with_its_default():
    check_settings(collect.CollectOptions, rows(section(read("collect.md"), "Settings")))


def test_every_setting_of_verify_is_documented_with_its_default():
    check_settings(verify.VerifyOptions, rows(section(read("collect.md"), "Deferred verification")))


def test_every_setting_of_run_is_documented_with_its_default():
    check_settings(run.RunOptions, rows(section(read("serving.md"), "Settings")))
