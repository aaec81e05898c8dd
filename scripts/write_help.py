"""Put what `--help` prints into docs/cli.md, where a test compares the two."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from pathlib import Path

from velodrome.cli.main import VERBS, main

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"


def help_of(words: list[str]) -> str:
    """What a verb prints about itself."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return said.getvalue().strip()


def written(page: str) -> str:
    """The page with every help block anew; a verb without a heading gets one."""
    for words in ([], *([verb] for verb in VERBS)):
        heading = " ".join(["## velo", *words])
        block = f"```text\n{help_of(words)}\n```"
        found = re.search(rf"^{heading}\n(?:(?!^## ).*\n)*?```text\n(?:(?!^```).*\n)*```", page, re.MULTILINE)
        if found is None:
            page = f"{page.rstrip()}\n\n{heading}\n\n{block}\n"
        else:
            whole = found.group()
            page = page.replace(whole, f"{whole.partition('```text')[0]}{block}")
    return page


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
    print(f"{PAGE.name}: {len(VERBS)} verbs", file=sys.stderr)
