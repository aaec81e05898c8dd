"""One tool, one call: a model is asked for the weather and has to look it up."""

from __future__ import annotations

import zlib
from typing import Any

from velodrome.records.conversation import Response
from velodrome.resources_servers.environment import Environment, tool

SKIES = ("sunny", "cloudy", "rainy", "windy", "foggy", "snowy")


class ExampleSingleToolCall(Environment):
    """The reward is 1.0 if the weather of the right city was looked up and the answer reports it."""

    @tool
    async def get_weather(self, city: str) -> dict[str, Any]:
        """Look up the weather in a city.

        city: the name of the city, for example Oslo
        """
        if not city.strip():
            raise ValueError("city must not be empty")
        return {"city": city.strip(), "sky": sky_over(city)}

    async def verify(self, task: dict[str, Any], response: Response) -> dict[str, Any]:
        """A task without `city` accepts any city."""
        cities = [
            str(call.arguments["city"])
            for call in response.tool_calls
            if call.name == "get_weather" and isinstance(call.arguments, dict) and call.arguments.get("city")
        ]
        wanted = task.get("city")
        right = cities if wanted is None else [city for city in cities if plain(city) == plain(str(wanted))]
        answer = response.text.lower()
        reported = any(sky_over(city) in answer for city in right)
        return {"reward": float(reported), "called_right_city": float(bool(right)), "num_weather_calls": len(cities)}


def sky_over(city: str) -> str:
    """The same city always has the same sky, on every machine."""
    return SKIES[zlib.crc32(plain(city).encode()) % len(SKIES)]


def plain(city: str) -> str:
    """A city's name without what does not matter: case, blanks, and what follows a comma."""
    return " ".join(city.split(",")[0].lower().split())
