"""The curves of docs/training.md as an SVG that reads in light and dark, from the figures of `learning.py`.

python -m benchmarks.train.learning_curves benchmarks/train/learning.json docs/pictures
"""

from __future__ import annotations

import sys
from pathlib import Path

import orjson

from benchmarks.summary import Json
from benchmarks.train.learning import FORMER, MAPS, RECIPE, SUPERVISED, TEACHER

WIDTH, HEIGHT, LEFT, TOP, ROW = 760, 380, 44, 14, 17
INK = {
    "light": {"ink": "#24292f", "faint": "#d0d7de", RECIPE: "#0969da", SUPERVISED: "#1a7f37", FORMER: "#cf222e"},
    "dark": {"ink": "#e6edf3", "faint": "#30363d", RECIPE: "#58a6ff", SUPERVISED: "#3fb950", FORMER: "#ff7b72"},
}
OTHERS = {"light": "#8c959f", "dark": "#7d8590"}
PLOT = 500  # the width of the plot; names are to its right


def drawn(runs: Json, title: str, theme: str) -> str:
    """A picture: a thin line for every seed."""
    ink, curves = INK[theme], {name: by_seed for name, by_seed in runs.items() if name != TEACHER and by_seed}
    points = [point for by_seed in curves.values() for run in by_seed.values() for point in run["points"]]
    teacher = sum(runs[TEACHER].values()) / len(runs[TEACHER])
    first, last = min(each["step"] for each in points), max(each["step"] for each in points)
    low, high = min(each["sampled"] for each in points), 1.03 * max(teacher, *(each["sampled"] for each in points))

    def place(step: float, value: float) -> str:
        x = LEFT + (step - first) / (last - first) * PLOT
        y = TOP + (high - value) / (high - low) * (HEIGHT - TOP - 40)
        return f"{x:.1f},{y:.1f}"

    def text(x: float, y: float, words: str, colour: str, anchor: str = "start") -> str:
        return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}" text-anchor="{anchor}">{words}</text>'

    parts = []
    for k in range(6):
        value, step = low + (high - low) * k / 5, first + (last - first) * k / 5
        x, y = (float(each) for each in place(step, value).split(","))
        parts.append(f'<path d="M{LEFT} {y}H{LEFT + PLOT}" stroke="{ink["faint"]}"/>')
        parts.append(text(LEFT - 6, y + 4, f"{value:.{1 if high - low < 10 else 0}f}", ink["ink"], "end"))
        parts.append(text(x, HEIGHT - 22, f"{step / 1e6:.2f} M", ink["ink"], "middle"))
    parts.append(f'<path d="M{place(first, teacher)}H{LEFT + PLOT}" stroke="{ink["ink"]}" stroke-dasharray="5 4"/>')
    names = [(TEACHER, ink["ink"])]
    for name in sorted(curves, key=lambda each: each in ink):  # the named ones on top
        colour = ink.get(name, OTHERS[theme])
        names.append((name, colour))
        for run in curves[name].values():
            line = " ".join(place(each["step"], each["sampled"]) for each in run["points"])
            wide = 1.8 if name in ink else 0.9
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{wide}"/>')
    for k, (name, colour) in enumerate([names[0], *names[:0:-1]]):
        parts.append(text(LEFT + PLOT + 14, TOP + 10 + k * ROW, name, colour))
    parts.append(text(LEFT, HEIGHT - 4, title, ink["ink"]))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', *parts, "</svg>\n"])


def main() -> int:
    """Light and dark of each map in the file."""
    found, folder = orjson.loads(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2])
    for name, place in MAPS.items():
        if RECIPE in found.get(name, {}):
            title = f"{place.mission}: return per agent with sampled actions, by agent step; a line per seed"
            for theme in INK:
                (folder / f"learning-{name}-{theme}.svg").write_text(drawn(found[name], title, theme))
    return 0


if __name__ == "__main__":
    sys.exit(main())
