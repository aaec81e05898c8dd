"""One messy file, and every page: each number is the one `velo metrics` prints, or the page says why not.

The file has failures, some made up for, deferred and missing rewards, keys that are there twice, rows without a key,
lines that are not rollouts, and several agents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from starlette.testclient import TestClient

from tests.support.index_rows import failure, rollout
from tests.support.made_runs import write
from tests.support.viewing import page_at, viewing, wait_for
from velodrome.cli.main import main
from velodrome.viewer.parts.render import number

Json = dict[str, Any]


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows: list[Any] = [
        rollout(f"t{task}", repeat, reward=float((task + repeat) % 3 == 0) + 0.5 * (task == 5), agent="ab"[task % 2])
        for task in range(12)
        for repeat in range(4)
    ]
    rows[3] = rollout("t0", 3, reward=None, meta={"verification": "deferred"})
    rows[7]["reward"] = None
    del rows[9]["reward"]
    rows[11]["reward"] = "high"
    rows += [rows[20], rows[21], {**rows[2], "meta": {}}]
    folder = tmp_path_factory.mktemp("messy")
    failures = [failure("t0", 9), failure("t0", 9, error="again"), failure("t1", 0, error="made up for")]
    write(folder / "r.failures.jsonl", [*failures, failure("z", 0, boundary="tool"), failure("z", 1)])
    return write(folder / "r.jsonl", [*rows[:15], b"garbage", b"", *rows[15:]])


@pytest.fixture(scope="module")
def client(messy: Path) -> Iterator[TestClient]:
    twin = messy.with_name("twin.jsonl")  # for a comparison with itself
    twin.write_bytes(messy.read_bytes())
    with viewing(messy, twin) as client:
        wait_for(client, "/run/r", "show all")
        yield client


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Json:
    """What a command prints as JSON."""
    main([*words, "--json"])
    result: Json = orjson.loads(capsys.readouterr().out)
    return result


def listed(client: TestClient, where: str) -> int:
    """How many rollouts a list says it has."""
    words = page_at(client, f"/run/r/rollouts?q={quote(where)}").words
    match = re.search(r"([\d,]+) rollouts? match", words)
    assert match, words[:300]
    return int(match[1].replace(",", ""))


def test_every_number_of_the_metrics_is_of_the_rollouts_that_a_filter_lists(
    client: TestClient, messy: Path, capsys: pytest.CaptureFixture[str]
):
    fields = printed(capsys, "metrics", str(messy))["run"]["fields"]
    assert fields["reward"]["n"] == 47
    for name, field in fields.items():
        assert listed(client, f"{name}:* -state:failed") == field["n"], name


def test_means_and_pass_rates_are_the_same_numbers_or_say_over_what(
    client: TestClient, messy: Path, capsys: pytest.CaptureFixture[str]
):
    metrics = printed(capsys, "metrics", str(messy))["metrics"]
    words = page_at(client, "/run/r").words
    assert f"mean reward {number(metrics['reward'])}" in words
    assert f"pass@1 {metrics['pass@1']:.1%}" in words
    assert f"pass@4 over {metrics['tasks/pass@4']} of {metrics['tasks/pass@1']} tasks {metrics['pass@4']:.1%}" in words
    means = re.search(r"over 47 rollouts: ([\d.]+)\. With every task weighed alike it is ([\d.]+)", words)
    assert means, words
    compared = wait_for(client, "/compare?a=r&b=twin", "12 tasks are in both runs").words
    assert f"reward {means[2]} over all rollouts {means[1]}" in compared


def test_a_finding_counts_what_it_lists_and_what_velo_check_counts(
    client: TestClient, messy: Path, capsys: pytest.CaptureFixture[str]
):
    page = page_at(client, "/run/r")
    checks = {(each["name"], each["count"]) for each in printed(capsys, "check", str(messy))["findings"]}
    shown = re.findall(r"(?:error|warning|info) ([a-z-]+) × ([\d,]+)", page.words)
    assert {(name, int(count)) for name, count in shown} == checks
    links = [link for link in page.links() if re.search("check%3D[a-z-]+$", link)]
    counts = [int(count) for count in re.findall(r"show all (\d+) rollout", page.words)]
    assert len(links) == len(counts) >= 6
    for link, count in zip(links, counts, strict=True):
        assert re.search(rf"\b{count} rollouts? match", page_at(client, link).words), link
