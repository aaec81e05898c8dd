"""The velo command where no sandbox works: namespaces are forbidden, and there is no sandlock."""

from __future__ import annotations

import sys

from forbidden import forbid_namespaces

from velodrome.cli.main import main

if __name__ == "__main__":
    forbid_namespaces()
    sys.modules["sandlock"] = None  # type: ignore[assignment]
    sys.exit(main(sys.argv[1:]))
