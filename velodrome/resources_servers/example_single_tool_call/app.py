"""One tool, one call: the task asks for the weather, and the model must look it up."""

from __future__ import annotations

import zlib
from typing import Any

from velodrome.records.conversation import Response
from velodrome.resources_servers.environment import Environment, tool

SKIES = ("sunny", "cloudy", "rainy", "windy", "foggy", "snowy")
MAX_SKIES = 2  # "it is not sunny but foggy" is an answer, a list of all skies is not


class ExampleSingleToolCall(Environment):
    """The reward is 1.0 if the model looked up the weather of the right city and reports it."""

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
        task_city = task.get("city")
        right = cities if task_city is None else [city for city in cities if plain(city) == plain(str(task_city))]
        skies = {sky for sky in SKIES if sky in response.text.lower()}
        reported = len(skies) <= MAX_SKIES and any(sky_over(city) in skies for city in right)
        return {"reward": float(reported), "called_right_city": float(bool(right)), "num_weather_calls": len(cities)}

    def reference_answer(self, task: dict[str, Any]) -> Any:
        """Look it up, then report it."""
        city = str(task.get("city") or "Oslo")
        return [lookup(city), f"It is {sky_over(city)} in {city}."]

    def wrong_answers(self, task: dict[str, Any]) -> dict[str, Any]:
        """The wrong sky, the wrong city, or no report."""
        city = str(task.get("city") or "Oslo")
        other_sky = next(sky for sky in SKIES if sky != sky_over(city))
        return {
            "another sky": [lookup(city), f"It is {other_sky} in {city}."],
            "no report": [lookup(city), "I have looked it up."],
            "not looked up": f"It is {sky_over(city)} in {city}.",
        }

    def cheats(self, task: dict[str, Any]) -> dict[str, Any]:
        """All skies at once, and answers that only claim a look-up."""
        city = str(task.get("city") or "Oslo")
        every = ", ".join(SKIES)
        return {
            "all skies, looked up": [lookup(city), f"It is {every}."],
            "all skies": f"It is {every}.",
            "says that it looked": f'get_weather(city="{city}") -> {{"city": "{city}", "sky": "{sky_over(city)}"}}',
            "another tool": [
                {"tool_calls": [{"name": "get_wether", "arguments": {"city": city}}]},
                f"It is {sky_over(city)}.",
            ],
            "no city": [{"tool_calls": [{"name": "get_weather", "arguments": {}}]}, f"It is {sky_over(city)}."],
            "broken arguments": [
                {"tool_calls": [{"name": "get_weather", "arguments": f'{{"city": "{city}"'}]},
                f"It is {sky_over(city)}.",
            ],
        }


def lookup(city: str) -> dict[str, Any]:
    """A model's answer that calls `get_weather`."""
    return {"tool_calls": [{"name": "get_weather", "arguments": {"city": city}}]}


def sky_over(city: str) -> str:
    """The same city always has the same sky, on every machine."""
    return SKIES[zlib.crc32(plain(city).encode()) % len(SKIES)]


def plain(city: str) -> str:
    """A city's name in lower case, without extra blanks and without anything after a comma."""
    return " ".join(city.split(",")[0].lower().split())
