"""An environment that a package brings is found by its entry point: class, config and data, from a real wheel."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.support.velo_process import velo
from velodrome.settings import installed

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "shop-env"
version = "1.2"

[project.entry-points."velodrome.environments"]
my_shop = "shop_env"
same_shop = "shop_env.app:MyShop"
lost_shop = "shop_env.nowhere:MyShop"

[tool.hatch.build.targets.wheel]
packages = ["shop_env"]
"""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the package was installed into."""
    source = tmp_path_factory.mktemp("source")
    assert velo(source, "init", "my_shop").returncode == 0
    (source / "resources_servers" / "my_shop").rename(source / "shop_env")
    (source / "shop_env" / "__init__.py").write_text("")
    (source / "shop_env" / "prices.py").write_text("from .app import PRICES\n")
    (source / "pyproject.toml").write_text(PROJECT)
    target = tmp_path_factory.mktemp("site")
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q"]
    pip = [sys.executable, "-m", "pip", "install", *offline, "--target", str(target), str(source)]
    subprocess.run(pip, check=True, capture_output=True)
    assert list(target.glob("shop_env-1.2.dist-info"))
    return target


def test_it_is_examined_and_collected_by_the_name_of_its_entry_point(site: Path, tmp_path: Path):
    done = velo(tmp_path, "test", "same_shop", "--json", "--only", "data,references", python_path=site)
    report = json.loads(done.stdout)
    assert (report["environment"], report["passed"], report["tasks"]) == ("same_shop", True, 6)
    (tmp_path / "model.yaml").write_text(
        "policy_model: {responses_api_models: {scripted_model: {answers: [The total is 3.]}}}\n"
    )
    home = "resources_servers/my_shop"
    done = velo(
        tmp_path,
        *("collect", f"+config_paths=[{home}/configs/my_shop.yaml,model.yaml]", "+embedded=true"),
        *(f"+input_jsonl_fpath={home}/data/example.jsonl", "+output_jsonl_fpath=out.jsonl"),
        python_path=site,
    )
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 6


def test_it_is_listed_with_its_package_and_the_folder_here_comes_first(site: Path, tmp_path: Path):
    listed = {entry["name"]: entry for entry in json.loads(velo(tmp_path, "envs", "--json", python_path=site).stdout)}
    assert listed["my_shop"]["origin"] == "package shop-env"
    assert "resources_servers/my_shop/configs/my_shop.yaml" in listed["my_shop"]["files"]
    assert "there is no module shop_env.nowhere" in listed["lost_shop"]["about"]
    velo(tmp_path, "init", "my_shop", python_path=site)
    app = tmp_path / "resources_servers" / "my_shop" / "app.py"
    app.write_text(app.read_text().replace("float(right)", "0.5 * right"))
    report = json.loads(velo(tmp_path, "test", "my_shop", "--json", "--only", "references", python_path=site).stdout)
    assert report["passed"] is False


def test_it_is_found_without_running_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "broken_package_env"
    package.mkdir()
    for file in ("__init__.py", "app.py"):
        (package / file).write_text("no python")
    monkeypatch.syspath_prepend(tmp_path)
    for value in (package.name, f"{package.name}.app:Shop"):
        entry = EntryPoint("broken", value, installed.GROUP)
        monkeypatch.setattr(installed, "_entries", lambda entry=entry: {"broken": entry})
        found = installed.installed_environment.__wrapped__("broken")
        assert (found.module, found.file) == (f"{package.name}.app", package / "app.py")
