"""Comparing any runs below a folder: two as ever, more as a table; the same numbers as `velo compare`."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.support.made_runs import make_run
from tests.support.viewing import page_at, viewing, wait_for
from velodrome.stats.compare import compare
from velodrome.stats.several import compare_several
from velodrome.viewer.parts.render import number


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs of the same thirty tasks, from bad to good."""
    folder = tmp_path_factory.mktemp("runs")
    for name, skill in (("a", 0.2), ("b", 0.5), ("c", 0.9), ("d", 0.88)):
        make_run(folder / f"{name}.jsonl", skill=skill, seed=ord(name), failed=0)
    return folder


def test_two_runs_below_a_folder_are_compared_without_a_restart(folder: Path):
    expected = compare([folder / "a.jsonl"], [folder / "c.jsonl"])
    reward = next(field for field in expected["fields"] if field["name"] == "reward")
    with viewing(folder) as client:
        page = wait_for(client, "/compare?run=a&run=c", "30 tasks are in both runs")
        assert f"reward {number(reward['a'])} {number(reward['b'])} ▲ +{number(reward['difference'])}" in page.words
        assert "/?run=a&run=c" in page.links()  # to pick more


def test_three_runs_are_a_table_with_the_numbers_of_a_comparison(folder: Path):
    expected = compare_several([folder / f"{name}.jsonl" for name in "abcd"])
    two, more = (
        next(field for field in result["fields"] if field["name"] == "reward")
        for result in (compare([folder / "a.jsonl"], [folder / "c.jsonl"]), expected)
    )
    assert (more["runs"][0]["mean"], more["runs"][2]["mean"]) == pytest.approx((two["a"], two["b"]))
    alike = [each["alike"] for each in more["runs"]]
    assert (alike[0], alike[5 - more["best"]]) == (False, True)  # the two good ones cannot be told apart
    with viewing(folder) as client:
        page = wait_for(client, "/compare?run=a&run=b&run=c&run=d", "30 tasks are in all runs")
        assert {"★", "≈"} <= {*page.words}
        assert "/compare?run=a&run=b&run=c" in page.links()  # without d
        rates, task = expected["tasks"][0]["rates"], expected["tasks"][0]["task"]
        worst, best = ("abcd"[rates.index(end)] for end in (min(rates), max(rates)))
        way = next(link for link in page.links() if link.startswith("/pair?"))
        assert way == f"/pair?a={worst}&b={best}&task={task}"
        assert page_at(client, client.get(way).headers["location"])


def test_the_settings_that_differ_come_before_the_numbers(tmp_path: Path):
    for name, temperature in (("a", 0.1), ("b", 1.2)):
        make_run(tmp_path / f"{name}.jsonl", seed=1, failed=0)
        record = {"recipe": {"responses_create_params": {"temperature": temperature}}, "runs": []}
        (tmp_path / f"{name}.run.json").write_bytes(orjson.dumps(record))
    with viewing(tmp_path) as client:
        words = wait_for(client, "/compare?run=a&run=b", "are in both runs").words
    assert "setting A B responses_create_params.temperature 0.1 1.2 Metrics" in words
