"""`velo init`: what it makes works at once; and `velo test` on it, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from velo_process import velo


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    done = velo(tmp_path, "init", "my_shop")
    assert done.returncode == 0
    assert "next: velo test my_shop" in done.stdout.splitlines()
    return tmp_path


def test_a_new_environment_passes_every_rule_and_its_own_test(shop: Path):
    done = velo(shop, "test", "my_shop", "--strict", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["passed"], report["not_checked"]) == (0, True, [])
    assert {rule["status"] for rule in report["rules"].values()} == {"passed"}
    assert report["cost"]["tool:get_price"]["calls"] > 0
    quiet = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    own = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=shop, env=quiet, capture_output=True, text=True)
    assert (own.returncode, "1 passed" in own.stdout) == (0, True), own.stdout


def test_a_broken_rule_is_exit_code_3_and_names_task_answer_and_what_was_seen(shop: Path):
    app = shop / "resources_servers" / "my_shop" / "app.py"
    app.write_text(app.read_text().replace("float(right)", "0.9 * right"))
    done = velo(shop, "test", "resources_servers/my_shop", "--most-tasks", "2")
    assert done.returncode == 3
    assert done.stdout.startswith("my_shop: failed: references (2 tasks, ")
    assert "task one-apple: reference: reward 0.9, not 1.0" in done.stdout


def test_a_file_with_one_class_needs_no_name_of_it(shop: Path):
    done = velo(shop, "test", "resources_servers/my_shop/app.py", "--only", "references")
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "MyShop"), done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["init", "my_shop"], "resources_servers/my_shop is there already"),
        (["init", "My-Shop"], "a name has small letters"),
        (["init", "class"], "a name has small letters"),
        (["init", "calculator"], "a built-in environment"),
        (["init"], "no name"),
        (["test"], "no environment"),
        (["test", "my_shp"], "did you mean 'my_shop'?"),
        (["test", "no/where"], "no app.py there"),
        (["test", "no.py:Where"], "no.py: no such file"),
        (["test", "no.py"], "no.py: no such file"),
        (["test", "resources_servers/my_shop/app.py:Shop"], "no class is called 'Shop'; did you mean 'MyShop'?"),
        (["test", "my_shop", "--only", "cheat"], 'did you mean "cheats"?'),
        (["test", "my_shop", "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]"], "there are: mcqa"),
        (["test", "my_shop", "--tasks", "none.jsonl"], "none.jsonl: no such file"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(shop: Path, words: list[str], told: str):
    done = velo(shop, *words)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_an_instance_of_a_config_has_its_settings_and_its_data(shop: Path):
    config = shop / "resources_servers" / "my_shop" / "configs" / "my_shop.yaml"
    config.write_text(
        config.read_text().replace("      domain: other", "      domain: other\n      verify_timeout_s: nine")
    )
    words = ["test", "my_shop", f"+config_paths=[{config}]", "--only", "data,references", "--json"]
    done = velo(shop, *words)
    assert (done.returncode, "verify_timeout_s" in done.stderr) == (2, True)
    config.write_text(config.read_text().replace("nine", "9"))
    report: dict[str, Any] = json.loads(velo(shop, *words).stdout)
    assert (report["passed"], report["tasks"]) == (True, 6)
