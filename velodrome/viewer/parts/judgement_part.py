"""The judgements of a rollout for its page. Their texts are untrusted, like a model's."""

from __future__ import annotations

from typing import Any

from velodrome.index import Entry
from velodrome.index.judgements import Judgement
from velodrome.viewer.parts.render import moment
from velodrome.viewer.parts.safe_text import plain_line, visible
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

MOST_SAID = 100  # judgements of one rollout on its page


def judgement_part(source: ViewedFile, entry: Entry) -> Json:
    """The judgements of a rollout; `earlier` ones are of a rollout that had its key before."""
    current, earlier = judgements_of(source, entry)
    shown = {"said": list(map(_shown, current[:MOST_SAID])), "earlier": list(map(_shown, earlier[:MOST_SAID]))}
    return shown | {"more": len(current) + len(earlier) - sum(map(len, shown.values()))}


def judgements_of(source: ViewedFile, entry: Entry) -> tuple[list[Judgement], list[Judgement]]:
    """The judgements of this rollout, and those of one that had its key before; the latest first."""
    finished = entry.numbers.get("finished_at")
    judgements = source.judgements.of(entry.key)
    return [each for each in judgements if each.is_of(finished)], [
        each for each in judgements if not each.is_of(finished)
    ]


def _shown(judgement: Judgement) -> Json:
    return {
        "by": plain_line(judgement.by, 60),
        "rating": judgement.rating,
        "tags": [plain_line(tag, 60) for tag in judgement.tags],
        "note": visible(judgement.note),
        "at": moment(judgement.at),
    }
