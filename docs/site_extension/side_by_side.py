"""Tables of strategies in turn, of settings, products alone and whole epochs, from the committed results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from site_extension.markdown import code, table

RESULTS = Path("benchmarks/results")
TURNS, EPOCHS = RESULTS / "side-by-side-cpu.json", RESULTS / "whole-epoch-cpu.json"
PLAIN = RESULTS / "side-by-side-plain-cpu.json"
GROWTH = RESULTS / "growth-cpu.json"
OTHER = RESULTS / "side-by-side-avx2-cpu.json"
SETTINGS = RESULTS / "cpu-settings.json"
PRODUCTS = {
    "generated": RESULTS / "products-generated-cpu.json",
    "public": RESULTS / "products-cpu.json",
}


def pages(root: Path) -> dict[str, str]:
    """A table for each."""
    paths = (TURNS, PLAIN, OTHER, EPOCHS, GROWTH, SETTINGS, *PRODUCTS.values())
    read = {path: json.loads((root / path).read_text()) for path in paths}
    products = "\n".join(product_table(read[path], path) for path in PRODUCTS.values())
    return {
        "parts/side-by-side.md": turn_table(read[TURNS], TURNS),
        "parts/side-by-side-plain.md": turn_table(read[PLAIN], PLAIN),
        "parts/side-by-side-avx2.md": turn_table(read[OTHER], OTHER),
        "parts/growth.md": growth_table(read[GROWTH]),
        "parts/cpu-settings.md": settings_table(read[SETTINGS]),
        "parts/products.md": products,
        "parts/whole-epoch.md": epoch_table(read[EPOCHS]),
    }


def machine(results: dict[str, Any]) -> str:
    """The processor and the threads of a file of results."""
    about = results["environment"]
    threads = about["threads"]
    features = f" ({about['processor_features']})" if "processor_features" in about else ""
    return f"{about['processor']}{features}, {threads} thread{'s' * (threads > 1)}"


def turn_table(results: dict[str, Any], path: Path) -> str:
    """Median seconds of a step and peak memory of two methods, and how many times less the second one takes."""
    body, rows = [], results["rows"]
    for row in rows:
        seconds, peaks = row["seconds_median"], row["peak_bytes"]
        peer, ours = seconds
        setting = row["conv"].upper(), *(row[key] for key in ("batch", "hidden", "layers", "deletions"))
        found = [f"{seconds[m]:.2f} s, {peaks[m] / 1e6:,.0f} MB" for m in (peer, ours)]
        ratios = [f"{of[peer] / of[ours]:.1f} ×" for of in (seconds, peaks)]
        body.append((*setting, code(ours), *found, *ratios))
    peer = next(iter(rows[0]["seconds_median"]))
    header = ("", "B", "H", "L", "deleted", "method", code(peer), "the method", "faster", "less memory")
    title = f"{machine(results)}. Seconds of a step, the median of steps taken in turn, and peak memory"
    return f"{title}; `{path}`.\n\n{table(header, body, 'lrrrrlrrrr')}"


def growth_table(results: dict[str, Any]) -> str:
    """Seconds of a step, memory and strains per second of cells of different size."""
    body = []
    for row in results["rows"]:
        ours, *peer = row["seconds_median"]
        body.append(
            (
                row["cell"],
                f"{row['nodes']:,}",
                f"{row['edges']:,}",
                *(f"{row['seconds_median'][m]:.2f} s, {row['peak_bytes'][m] / 1e6:,.0f} MB" for m in (ours, *peer)),
                *([] if peer else ["–"]),
                f"{row['training_strains_per_second']:,.1f}",
                f"{row['predicted_strains_per_second']:,.1f}",
            )
        )
    header = ("cell", "nodes", "edges", "step", "step of PyG", "trained strains/s", "predicted strains/s")
    first = results["rows"][0]
    title = f"{machine(results)}. GIN, B = {first['batch']}, H = 64, L = 3, three deletions, float32, not compiled"
    return f"{title}; `{GROWTH}`.\n\n{table(header, body, 'lrrrrrr')}"


def settings_table(results: dict[str, Any]) -> str:
    """Seconds of an epoch by threads, waiting and form of layers, beside so many busy processes."""
    by_setting: dict[tuple[str, ...], dict[int, dict[str, Any]]] = {}
    for row in results["rows"]:
        threads = f"1 in each of {row['processes']} processes" if row["processes"] > 1 else row["threads"]
        by_setting.setdefault((threads, row["waiting"], row["form"]), {})[row["busy"]] = row
    beside = sorted({row["busy"] for row in results["rows"]})
    fastest = {
        busy: min(rows[busy]["seconds"] for setting, rows in by_setting.items() if setting[0] != "auto")
        for busy in beside
    }
    body, took = [], []
    for setting, rows in by_setting.items():
        seconds = {busy: row["seconds"] for busy, row in rows.items()}
        found = [
            f"**{seconds[busy]:.2f}**" if seconds[busy] == fastest[busy] else f"{seconds[busy]:.2f}" for busy in beside
        ]
        body.append((*setting, *found))
        if setting[0] == "auto":
            took = [f"- beside {busy}: {'; '.join(row['said'])}" for busy, row in sorted(rows.items())]
    about = results["environment"]
    header = ("threads", "waiting", "layers in", *(f"beside {busy}" for busy in beside))
    processor = f"{about['processor']} ({about['processor_features']}), {about['cores']} cores"
    title = f"{processor}. Seconds of an epoch beside so many busy processes, the fastest setting in bold; `{SETTINGS}`"
    lines = "\n".join(took)
    return f"{title}.\n\n{table(header, body, 'lllrrr'[: len(header)])}\n`auto` took\n\n{lines}\n"


def product_table(results: dict[str, Any], path: Path) -> str:
    """Milliseconds of a product over all networks by kernel."""
    rows: dict[str, dict[bool, dict[str, Any]]] = {}
    for row in results["products"]:
        rows.setdefault(row["kernel"], {})[row["weighted"]] = row
    about, first = results["environment"], results["products"][0]
    body = [
        (code(kernel), *(milliseconds(by[weighted], key) for weighted in (False, True) for key in KEYS))
        for kernel, by in rows.items()
    ]
    title = (
        f"{machine(results)}. {about['cell'].capitalize()}: {first['edges']:,} edges, "
        f"B = {first['batch']}, H = {first['hidden']}; "
        f"milliseconds over all networks; `{path}`.\n"
    )
    header = ("kernel", "product", "and gradient", "weighted", "and gradient")
    return f"{title}\n{table(header, body, 'lrrrr')}"


KEYS = ("forward_seconds", "forward_backward_seconds")


def milliseconds(row: dict[str, Any], key: str) -> str:
    """Or why there are none."""
    return f"{1e3 * row[key]:,.0f}" if row["status"] == "ok" else row["status"].replace("_", " ")


def epoch_table(results: dict[str, Any]) -> str:
    """Hours of an epoch of the original experiments' size."""
    header = ("experiment", "strains run", "strains/s", "peak MB", "hours of an epoch", "")
    body = [
        (
            code(row["experiment"]),
            f"{row['strains']:,}",
            f"{row['training_strains_per_second']:,.2f}",
            f"{row['peak_memory_bytes'] / 1e6:,.0f}",
            f"{row['hours_of_332_313_strains']:.2f}",
            row["hours_are"],
        )
        for row in results["rows"]
    ]
    return f"{machine(results)}.\n\n{table(header, body, 'lrrrrl')}"
