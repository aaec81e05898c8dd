"""The velo command where no sandbox works: namespaces are forbidden."""

from __future__ import annotations

import sys

from forbidden import forbid_namespaces

from velodrome.cli.main import main

if __name__ == "__main__":
    forbid_namespaces()
    sys.exit(main(sys.argv[1:]))
