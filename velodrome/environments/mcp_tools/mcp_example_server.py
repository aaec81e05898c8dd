"""A small MCP server to try things with: a warehouse whose stock changes when something is reserved.

It uses only the standard library, so it starts quickly. It reads one message of JSON per line, and has the
methods that a client of tools needs.
"""

from __future__ import annotations

import json
import sys
from typing import Any

Json = dict[str, Any]

ITEMS = {  # name: (pieces in stock, price of one in cents)
    "bolt": (40, 15),
    "nut": (55, 8),
    "washer": (120, 3),
    "hinge": (14, 240),
    "bracket": (9, 410),
    "spring": (31, 95),
    "handle": (6, 1250),
}
stock = {name: pieces for name, (pieces, _) in ITEMS.items()}


def list_items() -> str:
    """Every item of the warehouse."""
    return ", ".join(sorted(ITEMS))


def count_stock(item: str) -> str:
    """How many pieces of an item are in stock now."""
    return str(stock[item])


def price_cents(item: str) -> str:
    """What one piece of an item costs, in cents."""
    return str(ITEMS[item][1])


def reserve(item: str, pieces: int) -> str:
    """Reserve pieces of an item; they leave the stock."""
    if not 0 < pieces <= stock[item]:
        raise ValueError(f"{pieces} pieces of {item} cannot be reserved: there are {stock[item]}")
    stock[item] -= pieces
    return f"reserved {pieces} of {item}, {stock[item]} left"


TOOLS = {each.__name__: each for each in (list_items, count_stock, price_cents, reserve)}
KINDS: dict[str, Json] = {
    "item": {"type": "string", "enum": sorted(ITEMS)},
    "pieces": {"type": "integer", "minimum": 1},
}


def parameters(name: str) -> list[str]:
    """The names of a tool's parameters."""
    return [each for each in TOOLS[name].__annotations__ if each != "return"]


def tool_schema(name: str) -> Json:
    """A tool in the format of `tools/list`."""
    names = parameters(name)
    schema = {"type": "object", "properties": {each: KINDS[each] for each in names}, "required": names}
    return {"name": name, "description": TOOLS[name].__doc__, "inputSchema": schema}


def call(name: Any, arguments: Any) -> Json:
    """A tool's result; a mistake of the caller is also a result."""
    try:
        if name not in TOOLS or not isinstance(arguments, dict) or set(arguments) != set(parameters(name)):
            raise ValueError(f"{name!r:.40} takes {parameters(name) if name in TOOLS else 'nothing: no such tool'}")
        if "item" in arguments and arguments["item"] not in ITEMS:
            raise ValueError(f"there is no item {arguments['item']!r:.40}; list_items names them")
        if "pieces" in arguments and type(arguments["pieces"]) is not int:
            raise ValueError("pieces must be a whole number")
        text, wrong = TOOLS[name](**arguments), False
    except (ValueError, TypeError) as error:
        text, wrong = str(error), True
    return {"content": [{"type": "text", "text": text}], "isError": wrong}


def answer(message: Json) -> Json:
    """The `result` or the `error` of a request."""
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        about = {"name": "warehouse", "version": "1"}
        return {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}}
    if method == "tools/list":
        return {"result": {"tools": [tool_schema(name) for name in TOOLS]}}
    if method == "tools/call":
        return {"result": call(params.get("name"), params.get("arguments") or {})}
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": f"no method {method!r:.40}"}}


def main() -> None:
    """Answer until stdin ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message)}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
