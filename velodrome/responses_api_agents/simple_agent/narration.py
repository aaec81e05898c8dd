"""The turns of an agent as one streamed Response: the items of all turns are counted through, its id is the first's."""

from __future__ import annotations

from contextlib import aclosing

from velodrome.contracts import Json, Model, events_of
from velodrome.errors import ModelError
from velodrome.records.events import ENDS, item_events, last_event
from velodrome.records.response_fields import item_id
from velodrome.records.turns import Turn
from velodrome.relay import Put

_BEGINNINGS = frozenset(("response.created", "response.in_progress"))


class Narration:
    """Reports what happens, by `put`, to whoever reads the stream."""

    def __init__(self, model: Model, put: Put[Json]) -> None:
        self._model = model
        self._put = put
        self._head: Json | None = None  # the id and the time of the whole, which are those of the first turn
        self._count = 0  # items of the turns before
        self._ids: set[str] = set()  # theirs

    async def respond(self, request: Json) -> Json:
        """The model's answer, once its events are told."""
        first = self._head is None
        renamed: dict[str, str] = {}  # ids that an earlier turn has used, to new ones
        async with aclosing(events_of(self._model, request)) as events:
            async for event in events:
                kind = event["type"]
                if kind in ENDS:
                    response: Json = event["response"]
                    output = [_with_id(item, renamed) for item in response["output"]]
                    self._count += len(output)
                    self._ids |= {item["id"] for item in output if item.get("id")}
                    return {**response, "output": output} if renamed else response
                if kind in _BEGINNINGS:
                    self._head = self._head or {name: event["response"].get(name) for name in ("id", "created_at")}
                    if first:
                        await self._put(event)
                elif "output_index" in event:
                    await self._put(self._moved(event, renamed))
        raise ModelError("the stream has no end")

    def _moved(self, event: Json, renamed: dict[str, str]) -> Json:
        """The event with the place, and the id, that its item has among all."""
        event = {**event, "output_index": self._count + event["output_index"]}
        if event["type"] == "response.output_item.added" and event["item"].get("id") in self._ids:
            item = event["item"]
            renamed[item["id"]] = item_id(item["type"], self._id, event["output_index"])
        if renamed:
            event |= {"item_id": renamed.get(event["item_id"], event["item_id"])} if "item_id" in event else {}
            event |= {"item": _with_id(event["item"], renamed)} if "item" in event else {}
        return event

    async def results(self, turns: list[Turn]) -> list[Turn]:
        """Results of tools, whose items have ids here, once they are told."""
        for turn in turns:
            turn.raw = [
                {**item, "id": item_id(item["type"], self._id, self._count + at), "status": "completed"}
                for at, item in enumerate(turn.raw)
            ]
            for item in turn.raw:
                for event in item_events(item, self._count):
                    await self._put(event)
                self._count += 1
        return turns

    async def end(self, response: Json) -> None:
        await self._put(last_event({**response, **(self._head or {})}))

    @property
    def _id(self) -> str:
        return str((self._head or {}).get("id"))


def _with_id(item: Json, renamed: dict[str, str]) -> Json:
    return {**item, "id": renamed[item["id"]]} if item.get("id") in renamed else item
