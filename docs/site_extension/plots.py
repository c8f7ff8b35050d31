"""Pictures of committed results: scores of the test part, and learning curves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

BAR, GAP, LEFT, WIDTH, RIGHT = 20, 10, 170, 430, 130
HEIGHT = 200

Curve = Sequence[tuple[float, float]]


def scores(found: Mapping[int, Mapping[str, Any]], metric: str) -> str:
    """Horizontal bars: ``metric`` of the test part, a bar for the model and each null model, a dot for each seed."""
    values: dict[tuple[str, bool], list[float]] = {}
    for record in found.values():
        first = record["rows"][0]["phenotype"]
        for row in record["rows"]:
            value = row["metrics"].get(metric)
            if row["part"] == "test" and row["phenotype"] == first and value is not None and math.isfinite(value):
                values.setdefault((row["model"], row.get("is_null", False)), []).append(value)
    if not values:
        return ""
    low = min(0.0, *(min(one) for one in values.values()))
    high = max(0.01, *(max(one) for one in values.values()))
    scale = WIDTH / (high - low)
    zero = LEFT - low * scale
    height = len(values) * (BAR + GAP) + GAP
    parts = [_open(LEFT + WIDTH + RIGHT, height)]
    for number, ((model, is_null), known) in enumerate(values.items()):
        y = GAP + number * (BAR + GAP)
        mean = statistics.fmean(known)
        start, end = sorted((zero, zero + mean * scale))
        spread = f" ± {statistics.stdev(known):.3f}" if len(known) > 1 else ""
        label = max(end, *(zero + value * scale for value in known)) + 10
        parts += [
            f'<text x="{LEFT - 10}" y="{y + BAR * 0.72:.1f}" text-anchor="end">{model}</text>',
            f'<rect class="{"other" if is_null else "ours"}" x="{start:.1f}" y="{y}" width="{end - start:.1f}" '
            f'height="{BAR}" rx="2"/>',
            *(f'<circle class="dot" cx="{zero + v * scale:.1f}" cy="{y + BAR / 2}" r="3.5"/>' for v in known),
            f'<text x="{label:.1f}" y="{y + BAR * 0.72:.1f}">{mean:.3f}{spread}</text>',
        ]
    return "".join([*parts, f'<path class="line" d="M{zero:.1f} 0V{height}"/></svg>\n'])


def curves(metrics: Mapping[int, Sequence[Mapping[str, Any]]]) -> str:
    """Training (thin) and validation loss over epochs, a colour for each seed."""
    lines: list[tuple[str, str, Curve]] = []
    for number, (seed, rows) in enumerate(metrics.items()):
        for key, kind in (("train/loss", "thin"), ("validation/loss", "thick")):
            curve = [(row["epoch"] + 1, row[key]) for row in rows if row.get(key) is not None]
            lines.append((f"{kind} seed-{number % 5}", f"seed {seed}" if kind == "thick" else "", curve))
    return lines_over(lines, "epoch")


def lines_over(lines: Sequence[tuple[str, str, Curve]], title: str) -> str:
    """Lines over a common axis: class, label or nothing, and points of each; empty with fewer than two places."""
    points = [point for _, _, curve in lines for point in curve]
    if len({x for x, _ in points}) < 2:
        return ""
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    y_low, y_high = min(y for _, y in points), max(y for _, y in points)
    y_high = y_high if y_high > y_low else y_low + 1.0

    def place(x: float, y: float) -> str:
        across = 60 + (x - x_low) / (x_high - x_low) * (WIDTH + 100)
        return f"{across:.1f} {10 + (y_high - y) / (y_high - y_low) * HEIGHT:.1f}"

    longest = max(len(label) for _, label, _ in lines)
    floor, width = HEIGHT + 10, WIDTH + max(270, 220 + 8 * longest)
    parts = [_open(width, HEIGHT + 50)]
    parts.append(f'<path class="line" d="M60 10V{floor}H{WIDTH + 160}"/>')
    parts += [
        f'<text class="small" x="54" y="{y}" text-anchor="end" font-size="12">{value:.3g}</text>'
        for y, value in ((20, y_high), (floor, y_low))
    ]
    parts += [
        f'<text class="small" x="{x}" y="{floor + 18}" text-anchor="middle" font-size="12">{value:g}</text>'
        for x, value in ((60, x_low), (WIDTH + 160, x_high))
    ]
    parts.append(f'<text class="small" x="{WIDTH / 2 + 110}" y="{floor + 34}" text-anchor="middle">{title}</text>')
    labelled = 0
    for kind, label, curve in lines:
        parts.append(f'<path class="curve {kind}" d="M{" L".join(place(x, y) for x, y in curve)}"/>')
        if label:
            y = 34 + 20 * labelled
            labelled += 1
            parts.append(f'<path class="curve {kind}" d="M{WIDTH + 185} {y - 5}h20"/>')
            parts.append(f'<text x="{WIDTH + 212}" y="{y}">{label}</text>')
    return "".join([*parts, "</svg>\n"])


def _open(width: float, height: float) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="14">'
