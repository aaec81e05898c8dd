"""The list of runs: sorted, filtered by words, some picked for a comparison. The address has the whole state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from velodrome.viewer.pages.links import Address, Links
from velodrome.viewer.runs.known_runs import KnownRun, KnownRuns
from velodrome.viewer.runs.run_summary import RunSummary

Json = dict[str, Any]

AT_ONCE = 200  # on one page
_COLUMNS: dict[str, tuple[str, Callable[[KnownRun, RunSummary], Any]]] = {  # by their name in the address
    "name": ("run", lambda run, summary: run.name.lower()),
    "reward": ("reward", lambda run, summary: summary.reward),
    "pass": ("pass@1", lambda run, summary: summary.pass_1),
    "kept": ("kept", lambda run, summary: summary.kept),
    "failed": ("failed", lambda run, summary: summary.failed),
    "size": ("size", lambda run, summary: summary.size),
    "date": ("date", lambda run, summary: summary.at),
}


def runs_page(runs: KnownRuns, picked: Sequence[str], address: Address) -> Json:
    """The values of the template."""
    all_runs = [(run, runs.summary(run)) for run in runs.all()]
    words = address.q.lower().split()
    matching = [(run, summary) for run, summary in all_runs if all(word in _text(run, summary) for word in words)]
    sort = address.sort if address.sort.removeprefix("-") in _COLUMNS else "-date" if runs.folders else ""
    ordered = _sorted(matching, sort)
    since = address.since if address.since < len(ordered) else 0
    shown = ordered[since : since + AT_ONCE]
    shown_slugs = {run.slug for run, _ in shown}
    return {
        "q": address.q,
        "sort": sort,
        "columns": [_column(name, sort) for name in _COLUMNS],
        "runs": [_row(run, summary, run.slug in picked) for run, summary in shown],
        "total": len(all_runs),
        "matching": len(matching),
        "shown": (since + 1, since + len(shown)),
        "earlier": max(since - AT_ONCE, 0) if since else None,
        "later": since + AT_ONCE if since + AT_ONCE < len(ordered) else None,
        "elsewhere": [slug for slug in dict.fromkeys(picked) if slug not in shown_slugs],
        "picked": len(set(picked)),
        "folders": [str(folder.path) for folder in runs.folders],
        "left_out": runs.notes,
        "live": sum(summary.live for _, summary in all_runs),
    }


def _text(run: KnownRun, summary: RunSummary) -> str:
    """The text that a filter searches."""
    found = run.found
    return " ".join((found.name, found.model, found.agent, found.kind, "live" if summary.live else "")).lower()


def _sorted(runs: list[tuple[KnownRun, RunSummary]], sort: str) -> list[tuple[KnownRun, RunSummary]]:
    """The runs in the order of a column. Runs without a value come last in both directions."""
    if not sort:
        return runs
    value = _COLUMNS[sort.removeprefix("-")][1]
    ordered = [each for each in runs if value(*each) is not None]
    ordered.sort(key=lambda each: value(*each), reverse=sort.startswith("-"))
    return [*ordered, *(each for each in runs if value(*each) is None)]


def _column(name: str, sort: str) -> Json:
    """A heading that sorts: numbers the largest first; if it is already chosen, the other way round."""
    up, down = name, f"-{name}"
    order = {up: "ascending", down: "descending"}.get(sort)
    first, second = (up, down) if name == "name" else (down, up)
    return {"name": name, "label": _COLUMNS[name][0], "order": order, "value": second if sort == first else first}


def _row(run: KnownRun, summary: RunSummary, picked: bool) -> Json:
    found, links = run.found, Links(run.slug)
    training = found.kind == "training"
    return {
        "slug": run.slug,
        "name": found.name,
        "path": str(found.path),
        "href": links.training() if training else links.run(),
        "training": training,
        "model": found.model or found.agent,
        "picked": picked,
        "line": summary,
    }
