"""Load files and folders with `datasets`, and print the rows of each as one line of JSON, or why it is refused.

datasets_load.py CACHE CHUNK_BYTES PATH …
"""

from __future__ import annotations

import json
import sys

import datasets

datasets.disable_progress_bars()
cache, chunk_bytes, *paths = sys.argv[1:]
for number, path in enumerate(paths):
    kind = {"jsonl": "json", "parquet": "parquet"}.get(path.rpartition(".")[2])
    source = {"path": kind, "data_files": path} if kind else {"path": path}
    if kind != "parquet":
        source["chunksize"] = int(chunk_bytes)
    try:
        rows = datasets.load_dataset(**source, split="train", cache_dir=f"{cache}/{number}", keep_in_memory=True)
        print(json.dumps({"rows": list(rows)}))
    except Exception as error:  # noqa: BLE001 - whatever it is, the file is refused
        print(json.dumps({"refused": f"{type(error).__name__}: {error}"}))
