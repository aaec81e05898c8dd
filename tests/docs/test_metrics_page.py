"""Every metric that can be printed has a heading in docs/metrics.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.support.pages import headings, read
from velodrome.records.facts import RowFacts
from velodrome.stats.metrics import Tally


def every_metric() -> Iterator[str]:
    """Each key that a collection can print, under the name of its heading."""
    tally = Tally()
    for repeat, reward in enumerate((0.0, 1.0, None)):
        meta: dict[str, Any] = {"key": f"a/{repeat}", "finished_at": 2.0, "timing": {"total_s": 1.0}}
        if reward is None:
            meta["verification"] = "deferred"
        row = {"reward": reward, "some_number": 3, "output": [], "usage": {"total_tokens": 1}, "meta": meta}
        tally.add(RowFacts({**row, "response": {"status": "incomplete"}}))
    tally.add(RowFacts({"reward": 1.0, "output": [], "meta": {"key": "b/0"}}))
    yield "rollouts/skipped"  # of the run, which knows what it did not do
    for key in tally.metrics(failed=1):
        name = re.sub(r"^stopped/.*", "stopped/OUTCOME", re.sub(r"pass@\d+$", "pass@k", key))
        name = re.sub(r"^n/.*", "n/FIELD", name)
        yield "Any numeric field" if key == "some_number" else name


def test_every_metric_that_can_be_printed_has_a_heading_and_every_heading_is_one():
    page = headings(read("metrics.md"))
    by_group = page[page.index("By group") : page.index("Reading them")]
    apart = {"Metrics", *by_group, "Reading them"}
    assert set(page) - apart == set(every_metric())
    assert {"pass^k", "majority@k", "mean, std, min, median, max"} <= set(by_group)
