"""docs/api.md is what scripts/write_api.py makes of the docstrings, and names everything that is public."""

from __future__ import annotations

import runpy
from pathlib import Path

import velodrome

ROOT = Path(__file__).parent.parent.parent


def test_the_page_is_up_to_date_and_complete():
    script = runpy.run_path(str(ROOT / "scripts" / "write_api.py"))
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert script["written"]() == page
    assert [name for name in velodrome.__all__ if f"\n### {name}\n" not in page and name != "errors"] == []
