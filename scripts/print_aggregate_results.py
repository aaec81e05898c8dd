"""Print the aggregate metrics of a rollouts file: `python scripts/print_aggregate_results.py
+jsonl_fpath=rollouts.jsonl`.
"""

import sys

from velodrome.cli.main import main

if __name__ == "__main__":
    files = [word.removeprefix("+jsonl_fpath=") for word in sys.argv[1:] if word.startswith("+jsonl_fpath=")]
    if len(files) != 1 or len(sys.argv) != 2:
        print("usage: python scripts/print_aggregate_results.py +jsonl_fpath=rollouts.jsonl", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(["metrics", files[0]]))
