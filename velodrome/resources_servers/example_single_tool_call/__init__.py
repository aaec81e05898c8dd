"""One tool, one call: the weather in a city."""
