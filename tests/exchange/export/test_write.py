"""From rollouts files to training files: chosen, shuffled, split, written whole, and reported."""

from __future__ import annotations

import random
import sys
from typing import Any

import orjson
import pytest

from velodrome.errors import InputError
from velodrome.exchange.export.selection import Selection
from velodrome.records.rollout import beside
from velodrome.records.zst import pack


def test_sft_takes_what_passed_unless_told_otherwise(shop: Any):
    source = shop.file(shop.row("a/0", 1.0, "good"), shop.row("b/0", 0.5, "bad"), shop.row("c/0", None, "unscored"))
    failure = {"key": "d/0", "boundary": "model", "error": "401", "partial": shop.row("d/0")["output"], "attempt": 1}
    beside(source, "failures.jsonl").write_bytes(orjson.dumps(failure) + b"\n")
    beside(source, "run.json").write_bytes(b'{"runs": 5, "versions": null}')
    outcome = shop.export("sft", source, to="sft.jsonl")
    assert shop.answers("sft.jsonl") == ["good"]
    assert (outcome.rollouts, outcome.chosen, outcome.unfit, outcome.duplicates) == (3, 1, 0, 0)
    assert outcome.records == {str(shop.folder / "sft.jsonl"): 1}
    shop.export("sft", source, to="all.jsonl", where="")
    assert shop.answers("all.jsonl") == ["good", "bad", "unscored"]
    card = shop.card("all.README.md")
    assert "| filter | `none: every rollout` |" in card
    assert "pass" not in card  # it holds what did not


def test_a_filter_is_that_of_the_viewer(shop: Any):
    rows = [shop.row("a/0", 1.0, "a lucky guess"), shop.row("a/1", 0.0, "no idea"), shop.row("b/0", 1.0, "sure")]
    for where, answers in {
        "0 < pass_rate < 1": ["a lucky guess", "no idea"],
        '"lucky guess"': ["a lucky guess"],
    }.items():
        shop.export("sft", shop.file(*rows), to="sft.jsonl", where=where, overwrite=True)
        assert shop.answers("sft.jsonl") == answers
    assert 'no field "rewrad"' in shop.refusal("sft", *rows, where="rewrad<1")[0]


def test_several_files_are_one_export_whose_tasks_are_grouped_and_whose_rows_name_their_file(shop: Any):
    one = shop.file(shop.row("a/0", 1.0), shop.row("b/0", 1.0), name="one.jsonl")
    two, same = (shop.file(shop.row("a/0", 0.0, "35"), name=name) for name in ("two.jsonl", "again/one.jsonl"))
    shop.export("grpo", one, two, to="grpo.jsonl")
    assert [(r["task"], r["rewards"]) for r in shop.records("grpo.jsonl")] == [("a", [1.0, 0.0]), ("b", [1.0])]
    shop.export("parquet", one, two, to="table.parquet")
    shop.export("parquet", one, same, to="same.parquet")
    assert [row["source"] for row in shop.records("table.parquet")] == ["one.jsonl", "one.jsonl", "two.jsonl"]
    assert [row["source"] for row in shop.records("same.parquet")] == [str(one), str(one), str(same)]


def test_compressed_files_are_read_and_written(shop: Any):
    import zstandard

    source = shop.folder / "rollouts.jsonl.zst"
    source.write_bytes(b"".join(pack(orjson.dumps(shop.row(f"{task}/0", answer=task)) + b"\n") for task in "abc"))
    shop.export("sft", source, to="sft.jsonl.zst")
    with zstandard.open(shop.folder / "sft.jsonl.zst", "rb") as stream:
        records = [orjson.loads(line) for line in stream.read().splitlines()]
    assert [record["messages"][-1]["content"] for record in records] == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["grpo", "dpo", "parquet"])
def test_the_seed_alone_decides_a_shuffle_whatever_the_order_of_rows(shop: Any, name: str):
    rows = [
        shop.row(f"t{task}/{repeat}", repeat % 2, f"{task} {repeat}", **{f"n{task % 3}": 0.5})
        for task in range(12)
        for repeat in range(5)
    ]
    rows += [shop.row("t1/1", 1, "another with that key"), shop.row("t1#2/0", 1, "a copy")]
    options = {"shuffle": True, "limit": 11, "split": "train=0.7,test=0.3", "dedupe": True, "where": ""}
    written = []
    for order, seed in enumerate((3, 3, 4)):
        source = shop.file(*rows, name=f"{order}/rollouts.jsonl")
        shop.export(name, source, to=f"out{order}", **options, seed=seed)
        files = sorted(path for path in (shop.folder / f"out{order}").iterdir() if path.name != "README.md")
        written.append([(path.name, path.read_bytes()) for path in files])
        random.Random(order).shuffle(rows)
    assert written[0] == written[1] != written[2]


def test_a_task_is_in_one_split_only(shop: Any):
    rows = [shop.row(f"t{task}{copy}/{at}") for at in range(3) for task in range(10) for copy in ("", "#2")]
    shop.export("parquet", shop.file(*rows), to="data", split="train=0.8,test=0.2")
    splits = [[row["task"].removesuffix("#2") for row in shop.records(f"data/{name}.parquet")]
              for name in ("train", "test")]  # fmt: skip
    assert set(splits[0]) & set(splits[1]) == set()
    assert [(len(set(tasks)), len(tasks)) for tasks in splits] == [(8, 48), (2, 12)]


def test_equal_records_are_written_once_and_a_limit_counts_records_over_all_splits(shop: Any):
    source = shop.file(shop.row("a/0"), shop.row("a/1"), shop.row("a/2", answer="other"))
    assert shop.export("sft", source, to="once.jsonl", dedupe=True).duplicates == 1
    assert shop.answers("once.jsonl") == ["36", "other"]
    assert shop.export("nemo_gym", source, to="ng.jsonl", dedupe=True).duplicates == 1
    kept = shop.export("sft", source, to="all.jsonl")  # counted whether or not they are left out
    assert (kept.duplicates, shop.answers("all.jsonl")) == (1, ["36", "36", "other"])
    assert "| records that equal an earlier one | `1` |" in (shop.folder / "all.README.md").read_text()
    source = shop.file(*(shop.row(f"t{at}/0") for at in range(20)))
    outcome = shop.export("sft", source, to="data", limit=7, split="train=0.5,test=0.5")
    assert sum(outcome.records.values()) == 7


def test_a_file_has_its_card_beside_it_and_a_folder_within(shop: Any):
    (shop.folder / "data.v1").mkdir()  # an existing folder may have any name
    source = shop.file(shop.row("a/0"), shop.row("b/0"))
    for to, options, files in (
        ("sft.jsonl", {}, ["sft.jsonl", "sft.README.md"]),
        ("deep/data", {}, ["deep/data/train.jsonl", "deep/data/README.md"]),
        ("data.v1", {}, ["data.v1/train.jsonl", "data.v1/README.md"]),
        ("x.jsonl", {"split": "a=0.5,b=0.5"}, ["x.a.jsonl", "x.b.jsonl", "x.README.md"]),
    ):
        assert shop.export("sft", source, to=to, **options).files == [shop.folder / name for name in files]


def test_the_card_says_what_how_and_where_from(shop: Any):
    source = shop.file(shop.row("a/0"), shop.row("b/0"), shop.row("c/0", 0.0))
    recipe = {"instances": {"model": {"settings": {"text": "```"}}}}
    run = {"recipe": recipe, "versions": {"velodrome": "0.1.0"}, "runs": [{"input": "tasks.jsonl"}] * 2}
    beside(source, "run.json").write_bytes(orjson.dumps(run))
    shop.export("sft", source, to="sft.jsonl", dedupe=True, shuffle=True, seed=7)
    card = shop.card("sft.README.md")
    assert {
        "# sft: 2 records",
        "| `sft.jsonl` | 2 |",
        "| rollouts in the sources | `3` |",
        "| filter | `reward>=1` |",
        "| chosen by it | `2` |",
        "| equal records left out | `0` |",
        "| seed | `7` |",
        "| reasoning | `keep` |",
        "### rollouts.jsonl",
        '- versions: `{"velodrome":"0.1.0"}`',
        "- inputs: `tasks.jsonl`",
    } <= set(card.splitlines())
    assert "| `tools` | the functions on offer" in card
    assert orjson.loads(card.split("````json\n")[1].split("\n````")[0]) == recipe


def test_nothing_is_overwritten_unless_requested_and_the_rollouts_never(shop: Any):
    source = shop.file(shop.row("a/0"))
    rollouts = source.read_bytes()
    mine = [shop.folder / "sft.jsonl", shop.folder / "sft.README.md"]
    for path in mine:
        path.write_text("mine")
    problems = shop.refusal("sft", shop.row("a/0"), to="sft.jsonl")
    assert problems == tuple(f"{path}: there already; set overwrite to replace it" for path in mine)
    assert [path.read_text() for path in mine] == ["mine"] * 2
    shop.export("sft", source, to="sft.jsonl", overwrite=True)
    assert len(shop.records("sft.jsonl")) == 1
    (problem,) = shop.refusal("sft", shop.row("a/0"), to="run.failures.jsonl", overwrite=True)  # of another run
    assert "run.failures.jsonl: the name of a file that belongs to a run's rollouts" in problem
    with pytest.raises(InputError, match="the file that is read, or one that belongs to it"):
        shop.export("sft", source, to="rollouts.jsonl", overwrite=True)
    assert source.read_bytes() == rollouts


def deferred(row: Any) -> Any:
    return {**row, "reward": None, "meta": {**row["meta"], "verification": "deferred"}}


EPISODE = {"agents": 1, "ended": "terminal", "returns": [208.0], "actions": [[0], [1]]}


def test_a_name_that_cannot_be_written_is_refused(shop: Any):
    for name, to, why in (
        ("nemo_gym", "out.parquet", "this format is written as .jsonl"),
        ("verl", "out.jsonl", "this format is written as .parquet"),
        ("sft", "out.csv", "a file's name ends in .jsonl, .jsonl.zst, .parquet; a folder's has no ending"),
        ("sft", "rollouts.jsonl/out.jsonl", "cannot be written: File exists"),
    ):
        assert shop.refusal(name, shop.row("a/0"), to=to) == (f"{shop.folder / to}: {why}",)


def test_an_export_of_nothing_says_why_and_leaves_nothing(shop: Any):
    rows = [shop.row("a/0", 0.0), shop.row("a/1", 0.0)]
    for name in ("sft", "parquet"):
        assert shop.refusal(name, *rows, where="reward>=1") == (
            "nothing to export: 0 of 2 rollouts are chosen by the filter 'reward>=1'",
        )
    assert shop.refusal("dpo", *rows, shop.row("b/0", 0.5))[2] == (
        "tasks: 2, with several rollouts: 1, with different rewards: 0"
    )
    problems = shop.refusal("sft", *map(deferred, rows))
    source = shop.folder / "rollouts.jsonl"
    assert problems[1] == f"2 rollouts of {source} have no reward yet; velo verify {source} gives them one"


HOSTILE = [
    b"not json\n",
    b"[1, 2]\n",
    b"5\n",
    b"{}\n",
    b'{"meta": 5, "reward": 1}\n',
    b'{"reward": 1, "meta": {"key": 7}}\n',
    b'{"reward": 1, "meta": {"key": "no-repeat"}, "output": []}\n',
    b'{"reward": 1, "meta": {"key": "x/0"}, "responses_create_params": 5, "output": "text"}\n',
    b'{"reward": 1, "meta": {"key": "y/0"}, "responses_create_params": {"input": [5]}, "output": [7, null]}\n',
    b'{"reward": NaN, "meta": {"key": "n/0"}}\n',
    b'{"reward": 1, "meta": {"key": "s/0"}, "text": "\\ud800"}\n',
    b'{"reward": 1, "meta": {"key": "z/0"}, "responses_create_params": {"input": "x", "tools": [1]},'
    b' "output": [{"role": "assistant", "tool_calls": [{}]}]}\n',
    b'{"meta":{"key":"d/0"},"reward":1,"output":' + b"[" * 600 + b"]" * 600 + b"}\n",
    b'\xff\xfe{"a": 1}\n',
]


@pytest.mark.parametrize("name", ["sft", "dpo", "grpo", "verl", "parquet", "nemo_gym"])
def test_lines_that_are_no_rollouts_are_notes_and_never_stop_the_others(shop: Any, name: str):
    big = shop.row("a/0", 1.0, "x" * 1_000_000)
    huge = {**shop.row("h/0"), "reward": 2**63}  # a whole number that no float holds exactly
    source = shop.file(*HOSTILE[:7], big, *HOSTILE[7:], shop.row("a/1", 0.0, "y"), huge, b'{"torn": ')
    outcome = shop.export(name, source, to="out", where="")
    assert sum(outcome.records.values()) >= 1
    assert outcome.notes
    texts = b"".join(path.read_bytes() for path in (shop.folder / "out").iterdir() if path.suffix == ".jsonl")
    assert name in ("verl", "parquet") or b"x" * 1_000_000 in texts


def test_rows_of_a_wrong_shape_are_left_out_and_their_parts_are_named(shop: Any):
    for name, value, part in (
        ("output", 7, "output"),
        ("output", [7], "output"),
        ("output", [{"role": "other"}], "a part of it"),
        ("responses_create_params", None, "responses_create_params.input"),
        ("responses_create_params", {"input": ["x"]}, "responses_create_params.input"),
        ("responses_create_params", {"input": "x", "tools": 5}, "responses_create_params.tools"),
    ):
        source = shop.file(shop.row("a/0"), {**shop.row("b/0"), name: value})
        outcome = shop.export("sft", source, to="sft.jsonl", where="", overwrite=True)
        [note] = [note for note in outcome.notes if note.startswith("rollout b/0: it is not a rollout:")]
        assert (outcome.unfit, part in note, "Error" in note) == (1, True, False), note


def test_what_is_left_out_is_named_with_its_key_and_reason(shop: Any):
    """In the result and on the card, in bounded number."""
    odd = [shop.row(f"{at}/0", output=[{"role": "other", "item": {"type": f"<b|{at}"}}]) for at in range(30)]
    source = shop.file(shop.row("a/0"), shop.row("b/0", output=[]), shop.row("c/0", output=[]), *odd)
    outcome = shop.export("sft", source, to="sft.jsonl")
    assert outcome.notes[0] == "rollout b/0: it has no answer (and 1 more like it); left out"
    assert (len(outcome.unfit_reasons), sum(outcome.unfit_reasons.values()), outcome.unfit) == (21, 32, 32)
    assert (outcome.unfit_reasons["it has no answer"], outcome.unfit_reasons["other reasons"]) == (2, 11)
    card = shop.card("sft.README.md").splitlines()
    assert "| left out: it has no answer | `2` |" in card
    assert r"| left out: it has a step of the kind '&lt;b\|0', which chat has no form for | `1` |" in card


@pytest.mark.parametrize("name", ["nemo_gym", "sft", "parquet"])
def test_what_json_has_no_form_for_is_changed_and_counted(shop: Any, name: str):
    odd = orjson.dumps(shop.row("b/0")).replace(b'"accuracy":1.0', b'"accuracy":NaN,"worst":-Infinity') + b"\n"
    outcome = shop.export(name, shop.file(shop.row("a/0"), odd), to="out")
    assert (outcome.changed, sum(outcome.records.values())) == (1, 2)
    changed = "NaN and infinite numbers are null, broken text has U+FFFD"
    assert outcome.notes[-1] == f"changed rollouts: 1 ({changed})"
    assert f"| changed: {changed} | `1` |" in shop.card("out/README.md")
    if name == "nemo_gym":
        rows = shop.records("out/train.jsonl")
        assert [(row["accuracy"], "worst" in row) for row in rows] == [(1.0, False), (None, True)]


@pytest.mark.parametrize("name", ["sft", "verl"])
def test_a_split_without_records_has_no_file_not_even_an_older_one_and_shares_are_scaled(shop: Any, name: str):
    many = shop.file(*(shop.row(f"t{at}/0") for at in range(20)), name="many.jsonl")
    shop.export(name, many, to="data", split="train=0.9,test=0.1")
    outcome = shop.export(name, shop.file(shop.row("a/0")), to="data", split="train=90,test=10", overwrite=True)
    end = "jsonl" if name == "sft" else "parquet"
    assert sorted((shop.folder / "data").iterdir()) == sorted(outcome.files)
    assert outcome.records == {str(shop.folder / f"data/train.{end}"): 1}
    scaled, empty = outcome.notes
    assert "train 0.9, test 0.1" in scaled
    assert empty.startswith(f"{shop.folder / 'data/test'}.{end}: not written")
    card = shop.card("data/README.md")
    assert "| split by task | `train 0.9, test 0.1` |" in card
    assert f"| `test.{end}` | none: it is not written |" in card


@pytest.mark.parametrize("change", ["overwritten", "another run", "grown"])
def test_rows_of_a_file_that_changes_are_not_mixed_and_one_that_grows_is_exported_as_it_was(shop: Any, change: str):
    """Rows are read by their place: what stands there must be what was chosen."""
    source = shop.file(*(shop.row(f"t{at}/0") for at in range(5)))
    whole = source.read_bytes()
    selection = Selection([source], "")
    units = selection.units(by_task=False, shuffle=False, seed=0)
    next(units)

    def read_on() -> int:
        rest = len(list(units))
        selection.check()
        return rest

    if change == "grown":
        source.write_bytes(whole + whole.splitlines(keepends=True)[0])
        assert read_on() == 4
        return
    if change == "overwritten":
        source.write_bytes(b" " * len(whole))
    else:  # the same keys in the same lines
        shop.file(whole.replace(b'"content":"36"', b'"content":"35"'), name="fresh.jsonl").replace(source)
    with pytest.raises(InputError, match="changed while it was exported; nothing is written; run it again"):
        read_on()


def test_parquet_without_pyarrow_names_the_extra(shop: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert shop.refusal("verl", shop.row("a/0"), to="data") == (
        f"{shop.folder / 'data/train.parquet'}: Parquet needs pyarrow; pip install 'velodrome[parquet]'",
    )


def test_many_rows_of_a_parquet_file_are_written_in_batches(shop: Any):
    import pyarrow.parquet

    source = shop.file(*(shop.row(f"t{at}/0") for at in range(1010)))
    shop.export("parquet", source, to="table.parquet")
    assert [row["task"] for row in shop.records("table.parquet")] == [f"t{at}" for at in range(1010)]
    assert pyarrow.parquet.ParquetFile(shop.folder / "table.parquet").num_row_groups >= 2


@pytest.mark.parametrize("name", ["sft", "grpo", "dpo"])
def test_episodes_of_a_policy_are_no_conversations_and_are_left_out_of_texts(shop: Any, name: str):
    field = {"season": 1, "number": 2}  # of a task
    rows = [shop.row("a/0", 2.0, "36"), shop.row("a/1", 1.0, "35", episode=field)]
    played = [shop.row(f"{task}/{at}", 208.0 + at, episode=EPISODE) for task in "bc" for at in (0, 1)]
    mixed = shop.row("a/2", 300.0, episode=EPISODE)
    outcome = shop.export(name, shop.file(played[0], *rows, mixed, *played[1:]), to="out.jsonl")
    alone = shop.export(name, shop.file(*rows, name="alone.jsonl"), to="alone_out.jsonl")
    assert shop.records("out.jsonl") == shop.records("alone_out.jsonl")
    assert (outcome.chosen, outcome.unfit, outcome.episodes, alone.unfit) == (7, 5, 5, 0)
    assert outcome.unfit_reasons == {"an episode of a policy and no conversation": 5}
    [problem] = shop.refusal(name, *played, where="")
    assert "velo export parquet takes episodes" in problem
    shop.export("nemo_gym", shop.file(mixed), to="whole.jsonl")
    assert [record["episode"] for record in shop.records("whole.jsonl")] == [EPISODE]
