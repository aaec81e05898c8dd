"""`velo init`: what it makes works at once; and `velo test` on it, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.velo_process import velo
from velodrome.cli.main import main

pytestmark = pytest.mark.slow


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder, which is the current one, with a new environment."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my_shop"]) == 0
    assert "next: velo test my_shop" in capsys.readouterr().out.splitlines()
    return tmp_path


def test_a_new_environment_passes_every_rule_and_its_own_test(tmp_path: Path):
    assert velo(tmp_path, "init", "my_shop").returncode == 0
    done = velo(tmp_path, "test", "my_shop", "--strict", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["passed"], report["not_checked"]) == (0, True, [])
    assert {rule["status"] for rule in report["rules"].values()} == {"passed"}
    assert report["cost"]["tool:get_price"]["calls"] > 0
    quiet = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q"]
    own = subprocess.run(command, cwd=tmp_path, env=quiet, capture_output=True, text=True)
    assert (own.returncode, "1 passed" in own.stdout) == (0, True), own.stdout


def test_a_broken_rule_is_exit_code_3_and_names_task_answer_and_what_was_seen(shop: Path, capsys: Any):
    app = shop / "resources_servers" / "my_shop" / "app.py"
    assert main(["test", str(app), "--only", "references"]) == 0  # a file with one class needs no name of it
    assert capsys.readouterr().out.startswith("MyShop: passed")
    app.write_text(app.read_text().replace("float(right)", "0.9 * right"))
    assert main(["test", "resources_servers/my_shop", "--most-tasks", "2"]) == 3
    out = capsys.readouterr().out
    assert out.startswith("my_shop: failed: references (2 tasks, ")
    assert "task one-apple: reference: reward 0.9, not 1.0" in out


def test_a_mistake_is_one_line_and_exit_code_2(shop: Path, capsys: Any):
    for words, told in (
        ("init my_shop", "resources_servers/my_shop is there already"),
        ("init My-Shop", "a name has small letters"),
        ("init calculator", "a built-in environment"),
        ("test my_shp", 'did you mean "my_shop"?'),
        ("test no.py:Where", "no.py: no such file"),
        ("test resources_servers/my_shop/app.py:Shop", "no class is called 'Shop'; did you mean \"MyShop\"?"),
        ("test my_shop --only cheat", 'did you mean "cheats"?'),
        ("test my_shop --tasks none.jsonl", "none.jsonl: no such file"),
    ):
        assert main(words.split()) == 2
        assert told in capsys.readouterr().err


def test_an_instance_of_a_config_has_its_settings_and_its_data(shop: Path, capsys: Any):
    config = shop / "resources_servers" / "my_shop" / "configs" / "my_shop.yaml"
    domain = "      domain: other"
    config.write_text(config.read_text().replace(domain, f"{domain}\n      verify_timeout_s: nine"))
    words = ["test", "my_shop", f"+config_paths=[{config}]", "--only", "data,references", "--json"]
    assert main(words) == 2
    assert "verify_timeout_s" in capsys.readouterr().err
    config.write_text(config.read_text().replace("nine", "9"))
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["passed"], report["tasks"]) == (True, 6)
