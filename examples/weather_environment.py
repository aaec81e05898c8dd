"""A whole environment: one tool and a score. `docs/environments.md` walks through it."""

from velodrome import Environment, tool

FORECAST = {"oslo": "snow", "lima": "fog", "cairo": "sun"}


class Weather(Environment):
    @tool
    def get_weather(self, city: str) -> str:
        """The weather in a city.

        city: the name of the city
        """
        if city.lower() not in FORECAST:
            raise ValueError(f"no forecast for {city}; there is one for {', '.join(FORECAST)}")
        return FORECAST[city.lower()]

    def verify(self, task, response):
        looked_up = any(call.name == "get_weather" for call in response.tool_calls)
        right = task["expected"] in response.text.lower()
        return {"reward": float(looked_up and right), "accuracy": float(right), "looked_up": float(looked_up)}
