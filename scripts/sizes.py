"""Write the sizes of the package, its tests and its docs into docs/design.md.

    python scripts/sizes.py          # print them
    python scripts/sizes.py --write  # write them

tests/test_shape.py fails if the page is off by more than a tenth.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "design.md"
MARK = re.compile(r"(<!-- sizes -->\n).*?(?=<!-- end -->)", re.DOTALL)


def sizes() -> dict[str, tuple[int, int]]:
    """Modules and lines of each part of the package, and of the whole, the tests and the docs (in words)."""
    modules: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    package = ROOT / "velodrome"
    for path in package.rglob("*.py"):
        part = path.relative_to(package).parts[0].removesuffix(".py")
        part = "(top level)" if (package / f"{part}.py").exists() or part == "__init__" else part
        for name in (part, "velodrome"):
            modules[name] += 1
            lines[name] += path.read_text(encoding="utf-8").count("\n")
    for path in (ROOT / "tests").rglob("*.py"):
        modules["tests"] += 1
        lines["tests"] += path.read_text(encoding="utf-8").count("\n")
    for path in (ROOT / "docs").rglob("*.md"):
        modules["docs, words"] += 1
        lines["docs, words"] += len(path.read_text(encoding="utf-8").split())
    return {name: (modules[name], lines[name]) for name, _ in lines.most_common()}


def table() -> str:
    rows = [f"| {name} | {files:,} | {count:,} |" for name, (files, count) in sizes().items()]
    return "\n".join(["", "| part | files | lines |", "|---|---:|---:|", *rows, "", ""])


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(MARK.sub(rf"\1{table()}", PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(table())
