"""A static copy: pages that link to each other, their style and scripts beside them, and nothing else comes in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.made_runs import HOSTILE, hostile_row, make_run, rows_of, write
from tests.support.parsed_page import Page
from tests.support.viewing import harmless
from velodrome.errors import InputError
from velodrome.viewer import static_copy
from velodrome.viewer.parts.render import environment
from velodrome.viewer.static_copy import MARK, Copied, write_copy
from velodrome.viewer.viewed_file import opened


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty rollouts."""
    return make_run(tmp_path_factory.mktemp("copied") / "baseline.jsonl", tasks=20, repeats=3, failed=3)


def copied(path: Path, folder: Path, **chosen: object) -> Copied:
    with opened(path) as source:
        return write_copy(source, folder, **chosen)  # type: ignore[arg-type]


def pages(folder: Path) -> dict[str, Page]:
    return {path.name: Page(path.read_text()) for path in folder.glob("*.html")}


@pytest.mark.slow
def test_every_page_leads_only_to_pages_that_are_there_and_the_list_is_whole(run: Path, tmp_path: Path):
    done = copied(run, tmp_path / "copy", limit=55)
    copy = pages(tmp_path / "copy")
    assert done == Copied(rollouts=55, pages=len(copy), more=True)
    reached, todo = set(), ["index.html"]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            page = copy[name]
            assert (page.crossed, page.unclosed) == ([], []), name
            todo += [link for link in page.links() if not link.startswith("#")]
    assert reached == copy.keys()
    lists = [name for name in copy if name.startswith("rollouts")]
    shown = [link for name in lists for link in copy[name].links() if link.startswith("rollout-")]
    assert (len(lists), len(shown), len(set(shown))) == (2, 55, 55)


def test_a_page_needs_only_the_style_and_the_scripts_beside_it(run: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    copied(run, copy, limit=3)
    for path in copy.glob("*.html"):
        text = path.read_text()
        assert text.startswith(f"<!doctype html>\n{MARK}\n")
        page = harmless(Page(text))
        loaded = [attrs.get("src") or attrs["href"] for tag, attrs in page.tags if tag in ("script", "link", "img")]
        assert loaded[:2] == ["viewer.css", "viewer.js"]
        assert [name for name in loaded if not (copy / str(name)).is_file()] == []
        assert [attrs for tag, attrs in page.tags if tag == "script" and attrs.keys() != {"defer", "src"}] == []
        assert [attrs for tag, attrs in page.tags if tag == "form" and attrs != {"method": "dialog"}] == []
        policy = next(attrs["content"] or "" for _, attrs in page.tags if attrs.get("http-equiv"))
        assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; ")
    for own in Path(static_copy.__file__).with_name("static").glob("*.js"):
        script = (copy / own.name).read_text()
        assert own.read_text() in script
        assert re.findall(r"^(?:import|export) .*", script, re.MULTILINE) == []  # from a file, modules do not load
    assert environment().get_template("viewer.css").render() in (copy / "viewer.css").read_text()


def test_a_selection_holds_what_matches_and_no_more_than_the_limit(run: Path, tmp_path: Path):
    wanted = [number for number, row in enumerate(rows_of(run), 1) if row["reward"] == 1]
    assert copied(run, tmp_path / "all", where="reward>=1").rollouts == len(wanted)
    assert copied(run, tmp_path / "few", where="reward>=1", limit=7) == Copied(7, 7 + 7 + 4, more=True)
    names = {path.name for path in (tmp_path / "few").glob("rollout-*.html")}
    assert names == {f"rollout-{number}.html" for number in wanted[:7]}
    assert "7 rollouts, the first that match" in pages(tmp_path / "few")["rollouts.html"].words
    assert copied(run, tmp_path / "none", where="reward>5").rollouts == 0
    tasks = pages(tmp_path / "few")["tasks.html"]
    assert {link for link in tasks.links() if link.startswith("task-")} == {f"task-{n}.html" for n in range(1, 8)}


def test_long_texts_are_whole_in_a_copy_and_hostile_ones_are_text(tmp_path: Path):
    text = "word " * 20_000
    row = {"output": [{"role": "assistant", "content": text}], "reward": 1, "meta": {"key": "big/0"}}
    path = write(tmp_path / "r.jsonl", [hostile_row(f"{HOSTILE}/0"), row])
    copied(path, tmp_path / "copy")
    result = pages(tmp_path / "copy")
    assert text.strip() in "".join(result["rollout-2.html"].text)
    assert [name for name, page in result.items() if "img" in {tag for tag, _ in harmless(page).tags}] == []


def test_an_earlier_copy_makes_room_and_anything_else_is_left_alone(run: Path, tmp_path: Path):
    folder = tmp_path / "copy"
    copied(run, folder, limit=5)
    copied(run, folder, limit=2, where="reward<1")
    assert len([path for path in folder.iterdir() if path.name.startswith("rollout-")]) == 2
    (folder / "viewer.css").write_text("mine")
    with pytest.raises(InputError, match=r"holds viewer\.css"):
        copied(run, folder)
    (folder / "viewer.css").unlink()
    (folder / "notes.txt").write_text("mine")  # that of no copy
    with pytest.raises(InputError, match=r"holds notes\.txt"):
        copied(run, folder)
    assert (folder / "notes.txt").read_text() == "mine"
    assert len([path for path in folder.iterdir() if path.name.startswith("rollout-")]) == 2


def test_a_bad_filter_or_folder_is_a_mistake_before_anything_is_written(run: Path, tmp_path: Path):
    with pytest.raises(InputError, match='no field "rewrd"'):
        copied(run, tmp_path / "copy", where="rewrd<1")
    assert not (tmp_path / "copy").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="not a folder"):
        copied(run, tmp_path / "file")
