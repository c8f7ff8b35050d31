"""Pictures of committed results: bars of scores on the test part."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

BAR, GAP, LEFT, WIDTH, RIGHT = 20, 10, 170, 430, 130


def scores(values: Mapping[str, Mapping[int, float]]) -> str:
    """Horizontal bars: one for each model, the experiment's own first, with a dot for each seed."""
    if not values:
        return ""
    low = min(0.0, *(value for one in values.values() for value in one.values()))
    high = max(0.01, *(value for one in values.values() for value in one.values()))
    scale = WIDTH / (high - low)
    zero = LEFT - low * scale
    height = len(values) * (BAR + GAP) + GAP
    parts = [_open(LEFT + WIDTH + RIGHT, height)]
    for number, (model, of_seeds) in enumerate(values.items()):
        known = list(of_seeds.values())
        y = GAP + number * (BAR + GAP)
        mean = statistics.fmean(known)
        start, end = sorted((zero, zero + mean * scale))
        spread = f" ± {statistics.stdev(known):.3f}" if len(known) > 1 else ""
        label = max(end, *(zero + value * scale for value in known)) + 10
        parts += [
            f'<text x="{LEFT - 10}" y="{y + BAR * 0.72:.1f}" text-anchor="end">{model}</text>',
            f'<rect class="{"other" if number else "ours"}" x="{start:.1f}" y="{y}" width="{end - start:.1f}" '
            f'height="{BAR}" rx="2"/>',
            *(f'<circle class="dot" cx="{zero + v * scale:.1f}" cy="{y + BAR / 2}" r="3.5"/>' for v in known),
            f'<text x="{label:.1f}" y="{y + BAR * 0.72:.1f}">{mean:.3f}{spread}</text>',
        ]
    return "".join([*parts, f'<path class="line" d="M{zero:.1f} 0V{height}"/></svg>\n'])


def _open(width: float, height: float) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="14">'
