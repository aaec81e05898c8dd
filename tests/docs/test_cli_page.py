"""docs/cli.md is the help that is printed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pages import PROGRAMS, blocks, headings, read, section

from velodrome.cli.main import VERBS, main


def help_of(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        code = main([*words, "--help"])
    except SystemExit as ended:  # argparse ends by itself
        code = int(ended.code or 0)
    assert code == 0
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize("words", [[], *([verb] for verb in VERBS)], ids=lambda words: " ".join(["velo", *words]))
def test_the_help_in_the_docs_is_the_help_that_is_printed(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    own = section(read("cli.md"), " ".join(["velo", *words]))
    assert blocks(own, "text")[0].strip() == help_of(words, capsys)


def test_every_verb_and_every_program_has_a_heading():
    verbs = {f"velo {verb}" for verb in VERBS}
    assert set(headings(read("cli.md"))) == {"Commands", *PROGRAMS, *verbs}
