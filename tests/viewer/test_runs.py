"""`velo view DIR`: the runs below a folder, listed without opening them, sorted, filtered, picked; new ones appear."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from tests.support.made_runs import START, make_run, rollout, write
from tests.support.parsed_page import Page
from tests.support.viewing import TAGS, page_at, viewing, wait_for
from velodrome.cli import metrics
from velodrome.viewer.measurements import Measurements
from velodrome.viewer.runs.known_runs import KnownRuns


def save_metrics(run: Path, capsys: pytest.CaptureFixture[str], **changed: Any) -> dict[str, Any]:
    """What a collection leaves beside its rollouts."""
    assert metrics.run([str(run)]) == 0
    values = orjson.loads(capsys.readouterr().out) | changed
    path = run.with_name(run.name.replace(".jsonl", ".metrics.json"))
    path.write_bytes(orjson.dumps(values))
    return values


def made_folder(folder: Path) -> Path:
    """Three runs, and everything that is none."""
    for place, name in (("", "baseline"), ("deep/er", "candidate"), ("deep", "other")):
        (folder / place).mkdir(parents=True, exist_ok=True)
        make_run(folder / place / f"{name}.jsonl", tasks=6, repeats=2, failed=1, seed=len(name))
    write(
        folder / "tasks.jsonl", [{"id": "t", "responses_create_params": {"input": [{"role": "user", "content": "?"}]}}]
    )
    write(folder / "baseline.notes.jsonl", [{"key": "task-001/0", "by": "ada", "at": 1.0, "tags": ["odd"]}])
    write(folder / "chat.jsonl", [{"messages": [{"role": "user", "content": "Hello"}]}])
    (folder / "broken.jsonl").write_bytes(b"\x00\xff not json\n")
    (folder / "empty.jsonl").touch()
    (folder / ".hidden").mkdir()
    make_run(folder / ".hidden" / "secret.jsonl", tasks=1, repeats=1, failed=0)
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "linked.jsonl").symlink_to(folder / "baseline.jsonl")
    return folder


def listed(page: Page) -> list[str]:
    return [attrs["href"] or "" for tag, attrs in page.tags if tag == "a" and attrs.get("class") == "link"]


def test_the_runs_below_a_folder_are_listed_and_nothing_else(tmp_path: Path):
    with viewing(made_folder(tmp_path)) as client:
        page = page_at(client, "/")
        assert listed(page) == ["/run/baseline", "/run/deep-other", "/run/deep-er-candidate"]
        for words in ("3 runs", "deep/er/candidate.jsonl", "smollm2-135m"):
            assert words in page.words
        assert list(tmp_path.rglob("*.sqlite")) == []  # nothing was opened


def test_saved_numbers_are_listed_only_where_they_agree_with_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    good, stale, lying = (
        make_run(tmp_path / name, tasks=6, failed=1) for name in ("good.jsonl", "stale.jsonl", "lying.jsonl")
    )
    values = save_metrics(good, capsys)
    save_metrics(stale, capsys, reward=0.123)
    os.utime(tmp_path / "stale.metrics.json", (START, START))  # before the last rollout
    save_metrics(lying, capsys, **{"reward": 0.123, "rollouts/kept": 7})
    with viewing(tmp_path) as client:
        words = page_at(client, "/").words
        assert (f"{values['pass@1']:.1%} 23 1" in words, "0.123" in words, words.count("– – – –")) == (True, False, 2)
        page_at(client, "/run/lying")  # once it is open, its index says
        wait_for(client, "/?q=lying", f"{values['pass@1']:.1%} 23 1")


def test_numbers_of_rollouts_that_are_no_numbers_are_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    odd, good = (make_run(tmp_path / name, tasks=6, failed=1) for name in ("odd.jsonl", "good.jsonl"))
    save_metrics(good, capsys)
    save_metrics(odd, capsys, **{"rollouts/kept": [], "rollouts/failed": {}})
    path = tmp_path / "odd.run.json"
    run = orjson.loads(path.read_bytes())
    run["runs"][-1] |= {"kept": [], "failed": {}}
    path.write_bytes(orjson.dumps(run))
    with viewing(tmp_path) as client:
        for sort in ("kept", "-failed"):
            assert listed(page_at(client, f"/?sort={sort}"))[-1] == "/run/odd"


def test_the_list_is_sorted_and_filtered_by_its_address_and_what_is_picked_stays_picked(tmp_path: Path):
    with viewing(made_folder(tmp_path)) as client:
        assert listed(page_at(client, "/?sort=-name")) == ["/run/deep-other", "/run/deep-er-candidate", "/run/baseline"]
        assert listed(page_at(client, "/?q=DEEP+cand")) == ["/run/deep-er-candidate"]
        assert listed(page_at(client, "/?q=nothing+like+it")) == []
        for run in ("baseline", "deep-other"):
            page_at(client, f"/run/{run}")
        last = [listed(page_at(client, f"/?sort={sort}"))[-1] for sort in ("reward", "-reward")]
        assert last == ["/run/deep-er-candidate"] * 2  # whose reward is not known
        page = page_at(client, "/?q=other&run=baseline&run=deep-other")
        boxes = [attrs for tag, attrs in page.tags if tag == "input" and attrs.get("name") == "run"]
        picked = [(each["type"], each["value"], "checked" in each) for each in boxes]
        assert picked == [("hidden", "baseline", False), ("checkbox", "deep-other", True)]


def test_a_run_that_is_written_later_appears_and_one_that_is_removed_goes(tmp_path: Path):
    now = [100.0]
    make_run(tmp_path / "first.jsonl", tasks=3, failed=0)
    known = KnownRuns([tmp_path], Measurements(), clock=lambda: now[0])
    before = known.version()
    (tmp_path / "new").mkdir()
    make_run(tmp_path / "new" / "second.jsonl", tasks=3, failed=0)
    now[0] += 10
    assert [run.slug for run in known.all()] == ["first", "new-second"]
    assert known.version() != before
    (tmp_path / "first.jsonl").unlink()
    now[0] += 10
    assert [run.slug for run in known.all()] == ["new-second"]
    known.close()


def test_files_and_folders_are_mixed_and_a_file_is_listed_once(tmp_path: Path):
    folder = made_folder(tmp_path / "runs")
    alone = make_run(tmp_path / "alone.jsonl", tasks=3)
    with viewing(alone, folder, folder / "baseline.jsonl") as client:
        slugs = ("alone", "baseline", "deep-er-candidate", "deep-other")
        assert sorted(listed(page_at(client, "/"))) == [f"/run/{slug}" for slug in slugs]
    with viewing(alone) as client:
        assert client.get("/").headers["location"] == "/run/alone"


def test_runs_whose_names_are_alike_or_hostile_have_addresses_of_their_own(tmp_path: Path):
    for name in ("a b", "a-b", "a+b", "<img src=x onerror=alert(1)>\u202e"):
        write(tmp_path / f"{name}.jsonl", [rollout(1, 0, Random(1))])
    with viewing(tmp_path) as client:
        page = page_at(client, "/")
        assert ({tag for tag, _ in page.tags} <= TAGS, "\u202e" in page.words) == (True, False)
        assert len(set(listed(page))) == 4
        assert {client.get(link).status_code for link in listed(page)} == {200}
    (tmp_path / "c").mkdir()
    with viewing(tmp_path / "a b.jsonl", write(tmp_path / "c" / "a b.jsonl", [rollout(2, 0, Random(5))])) as client:
        assert "task-001/0" in page_at(client, "/run/a-b/rollouts").words
        assert "task-002/0" in page_at(client, "/run/a-b-2/rollouts").words


def test_many_runs_are_pages_of_two_hundred(tmp_path: Path):
    row = orjson.dumps(rollout(1, 0, Random(1))) + b"\n"
    for at in range(210):
        (tmp_path / f"{at:04}.jsonl").write_bytes(row)
    with viewing(tmp_path) as client:
        first, last = page_at(client, "/"), page_at(client, "/?since=200")
        assert (len(listed(first)), len(listed(last))) == (200, 10)
        back = [attrs["value"] for tag, attrs in last.tags if tag == "button" and attrs.get("name") == "since"]
        assert back == ["0"]
