"""Print the aggregate metrics of a rollouts file: `python scripts/print_aggregate_results.py
+jsonl_fpath=rollouts.jsonl`. Several files count as one run; flags are those of `velo metrics`.
"""

import sys

from velodrome.cli.main import main

FILE = "+jsonl_fpath="

if __name__ == "__main__":
    files = [word.removeprefix(FILE) for word in sys.argv[1:] if word.startswith(FILE)]
    flags = [word for word in sys.argv[1:] if not word.startswith(FILE)]
    if not all(files) or not files or any(word.startswith("+") for word in flags):
        print("usage: python scripts/print_aggregate_results.py +jsonl_fpath=rollouts.jsonl [--by …]", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(["metrics", *files, *flags]))
