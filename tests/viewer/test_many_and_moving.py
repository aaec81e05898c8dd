"""Tasks with thousands of repeats, lists while a file is replaced, findings about lines that are no rollouts."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from random import Random

import orjson
from made_runs import make_run, rollout, write
from viewing import page_at, viewing, wait_for

REPEATS = 2_105


def test_a_task_of_thousands_of_repeats_is_counted_whole_and_every_repeat_can_be_reached(tmp_path: Path):
    rows = []
    for repeat in range(REPEATS):
        row = {"output": [{"role": "assistant", "content": "x"}], "reward": float(repeat >= 2000)}
        rows.append(row | {"meta": {"key": f"t/{repeat}", "rollout_index": repeat, "timing": {"total_s": 2.0}}})
    path = write(tmp_path / "r.jsonl", rows)
    with viewing(path) as client:
        first = page_at(client, "/run/r/task?id=t")
        assert "passed 105 of 2,105 mean reward 0.05 mean time 2.0 s" in first.words
        assert "/run/r/task?id=t&since=12" in first.links()
        last = page_at(client, "/run/r/task?id=t&since=2100")
        assert re.findall(r"repeat (\d+)", last.words)[-5:] == ["2100", "2101", "2102", "2103", "2104"]
        assert "passed 105 of 2,105" in last.words
        assert not any("since=2112" in link for link in last.links())
        alone = page_at(client, "/run/r/task?id=t&since=2104")
        assert "the others are on other pages" in alone.words
        beyond = page_at(client, "/run/r/task?id=t&since=999999")
        assert re.findall(r"repeat (\d+)", beyond.words)[:2] == ["0", "1"]
        assert f"{REPEATS:,}" in page_at(client, "/run/r/rollout/1").words


def test_the_list_of_tasks_is_there_at_every_moment_while_the_file_is_replaced(tmp_path: Path):
    path = make_run(tmp_path / "r.jsonl")
    versions = [path.read_bytes(), b"".join(orjson.dumps(rollout(70, at, Random(at))) + b"\n" for at in range(9))]
    over = threading.Event()

    def replace() -> None:
        turn = 0
        while not over.is_set():
            turn += 1
            other = tmp_path / "new"
            other.write_bytes(versions[turn % 2])
            other.replace(path)

    with viewing(path) as client:
        thread = threading.Thread(target=replace)
        thread.start()
        try:
            statuses = [client.get("/run/r/tasks").status_code for _ in range(60)]
        finally:
            over.set()
            thread.join()
    assert set(statuses) == {200}


def test_an_example_is_a_link_only_where_there_is_a_rollout(tmp_path: Path):
    rows = [rollout(task, 0, Random(task)) for task in range(4)]
    path = write(tmp_path / "r.jsonl", [rows[0], b"{broken", rows[1], b"[]", *rows[2:]])
    with viewing(path) as client:
        page = wait_for(client, "/run/r", "unreadable-lines")
        assert "for example line 2, line 4" in page.words
        links = [link for link in page.links() if "/rollout/" in link]
        assert "/run/r/rollout/2" not in links
        assert {client.get(link).status_code for link in links} <= {200}
