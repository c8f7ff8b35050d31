"""Put together the kernels of a chain of row modules: one line of text for a module, in each of four kernels.

Two kernels compute the base's rows, forward and backward, and two the differences of the strains. What a module does is
a function of ``row_chain_triton``. The base's kernels keep the rows before every module that is not linear; those of
the differences read them, because such a module's difference depends on them.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

LINEAR, NORM, GELU, RELU = "linear", "norm", "gelu", "relu"
CURVED = (NORM, GELU, RELU)
WEIGHTED = (LINEAR, NORM)

Kinds = tuple[str, ...]


@cache
def kernels(kinds: Kinds) -> dict[str, Any]:
    """Return the kernels of a chain: ``base_forward``, ``base_backward``, ``forward`` and ``backward``."""
    import triton

    from dglcell.kernels import row_chain_triton

    name = f"<dglcell row chain {' '.join(kinds)}>"
    text = "\n\n".join(make(kinds) for make in TEXTS.values())
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name  # Triton reads the text from there
    found: dict[str, Any] = {**vars(row_chain_triton), "__name__": row_chain_triton.__name__}
    exec(compile(text, name, "exec"), found)
    return {word: triton.jit(found[word]) for word in TEXTS}


def _function(name: str, arguments: Iterable[str], body: Iterable[str]) -> str:
    return "\n".join([f"def {name}({', '.join(arguments)}):", *_indented(body)])


def _indented(lines: Iterable[str], depth: int = 1) -> list[str]:
    return ["    " * depth + line for line in lines]


def _named(words: str, kinds: Kinds, among: Sequence[str]) -> list[str]:
    return [f"{word}{i}" for word in words.split() for i, kind in enumerate(kinds) if kind in among]


def _eps(kinds: Kinds) -> list[str]:
    return [f"eps{i}: tl.constexpr" for i, kind in enumerate(kinds) if kind == NORM]


# The base's rows.

_OF_NODES = [
    "there = (nodes < N)[:, None]",
    "own = nodes[:, None] * H + columns[None, :]",
    "rows = r * N * H + own",
    "x_rows = tl.load(x + own, mask=there, other=0)",
]


def _base_forward(kinds: Kinds) -> str:
    arguments = ["x", "received", "scale", "out", *_named("weight bias", kinds, WEIGHTED)]
    arguments += [*_named("base", kinds, CURVED), "N, BN: tl.constexpr, H: tl.constexpr", *_eps(kinds)]
    body = [
        "r = tl.program_id(1).to(tl.int64)",
        "nodes = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)",
        "columns = tl.arange(0, H)",
        "across = columns[None, :] * H + columns[:, None]",
        *_OF_NODES,
        "a = tl.load(received + rows, mask=there, other=0) + tl.load(scale + r) * x_rows",
    ]
    for i, kind in enumerate(kinds):
        if kind == LINEAR:
            body.append(f"a = product(a, tl.load(weight{i} + r * H * H + across))")
            body.append(f"a += tl.load(bias{i} + r * H + columns)[None, :]")
            continue
        body.append(f"tl.store(base{i} + rows, a, mask=there)")
        if kind == NORM:
            body.append(f"gamma{i} = tl.load(weight{i} + r * H + columns)")
            body.append(f"beta{i} = tl.load(bias{i} + r * H + columns)")
        body.append(f"a = {_rows_after(i, kind, 'a')}")
    return _function("base_forward", arguments, [*body, "tl.store(out + rows, a, mask=there)"])


def _rows_after(i: int, kind: str, rows: str) -> str:
    if kind == NORM:
        return f"norm_rows({rows}, eps{i}, H) * gamma{i}[None, :] + beta{i}[None, :]"
    return f"{kind}_rows({rows})"


def _base_backward(kinds: Kinds) -> str:
    arguments = ["x", "received", "scale", "grad", "of_rows", "of_scale", *_named("weight bias", kinds, WEIGHTED)]
    arguments += [*_named("base of_base", kinds, CURVED), *_named("of_weight of_bias", kinds, WEIGHTED)]
    arguments += ["N, SUMMED: tl.constexpr, BN: tl.constexpr, H: tl.constexpr", *_eps(kinds)]
    before, back, after = [], [], []
    for i, kind in reversed(list(enumerate(kinds))):
        if kind in WEIGHTED:
            before.append(f"s{i} = tl.zeros((H,), tl.float32)")
            after.append(f"tl.store(of_bias{i} + place * H + columns, s{i})")
            back.append(f"s{i} += tl.sum(g, 0)")
        if kind == LINEAR:
            before += [f"w{i} = tl.load(weight{i} + r * H * H + square)", f"t{i} = tl.zeros((H, H), tl.float32)"]
            after.append(f"tl.store(of_weight{i} + place * H * H + square, t{i})")
            given = "tl.load(received + rows, mask=there, other=0) + scale_r * x_rows"
            if i:
                back.append(f"a{i - 1} = tl.load(base{i - 1} + rows, mask=there, other=0)")
                given = _rows_after(i - 1, kinds[i - 1], f"a{i - 1}")
            back += [f"t{i} = weight_gradient({given}, g, t{i})", f"g = product(g, w{i})"]
            continue
        if i + 1 == len(kinds) or kinds[i + 1] != LINEAR:
            back.append(f"a{i} = tl.load(base{i} + rows, mask=there, other=0)")
        if kind == NORM:
            before.append(f"gamma{i} = tl.load(weight{i} + r * H + columns)")
            before.append(f"beta{i} = tl.load(bias{i} + r * H + columns)")
            before.append(f"t{i} = tl.zeros((H,), tl.float32)")
            after.append(f"tl.store(of_weight{i} + place * H + columns, t{i})")
            back.append(f"t{i} += tl.sum(g * norm_rows(a{i}, eps{i}, H), 0)")
            back.append(f"g = norm_rows_gradient(a{i}, g * gamma{i}[None, :], eps{i}, H)")
        else:
            back.append(f"g = {kind}_rows_gradient(a{i}, g)")
        back.append(f"g += tl.load(of_base{i} + rows, mask=there, other=0)")
    loop = [
        "nodes = (number + 0 * r) * BN + tl.arange(0, BN)  # of 64 bits",
        *_OF_NODES,
        "g = tl.load(grad + (own if SUMMED else rows), mask=there, other=0)",
        *back,
        "tl.store(of_rows + rows, g, mask=there)",
        "of_scale_r += tl.sum(tl.sum(g * x_rows, 1), 0)",
    ]
    body = [
        "part, r = tl.program_id(0), tl.program_id(1).to(tl.int64)",
        "place = part * tl.num_programs(1) + r",
        "columns = tl.arange(0, H)",
        "square = columns[:, None] * H + columns[None, :]",
        "scale_r, of_scale_r = tl.load(scale + r), 0.0",
        *before,
        "for number in range(part, tl.cdiv(N, BN), tl.num_programs(0)):",
        *_indented(loop),
        *after,
        "tl.store(of_scale + place, of_scale_r)",
    ]
    return _function("base_backward", arguments, body)


# The strains' differences.

_SIZES = "N, B, R, HAS_X: tl.constexpr, SUMMED: tl.constexpr, TYPE: tl.constexpr, BB: tl.constexpr, H: tl.constexpr"

_GIVEN = [
    "d = load_rows(received, r * N + node, strains, columns, there, B, H)",
    "scale_r = tl.load(scale + r)",
    "if HAS_X:",
    "    x_rows = load_rows(x, node, strains, columns, there, B, H)",
    "    d += scale_r * x_rows",
]


def _steps(kinds: Kinds, kept: bool) -> list[str]:
    """Return the lines that compute the chain; ``kept`` where each step's input has a name of its own."""
    lines = []
    for i, kind in enumerate(kinds):
        out, given = (f"d{i + 1}", f"d{i}") if kept else ("d", "d")
        if kind == LINEAR:
            weight = f"tl.trans({_held(i, kinds)})" if kept else f"tl.load(weight{i} + r * H * H + across)"
            # Rounded here, so that a backward pass keeps half as many registers for it.
            lines += [f"{given} = {given}.to(TYPE)", f"{out} = product({given}, {weight})"]
            continue
        lines.append(f"a{i} = tl.load(base{i} + (r * N + node) * H + columns)")
        if kind == NORM:
            lines.append(f"n{i} = norm_difference({given}, a{i}, eps{i}, H)")
            gamma = f"gamma{i}" if kept else f"tl.load(weight{i} + r * H + columns)"
            lines.append(f"{out} = n{i} * {gamma}[None, :]")
        else:
            lines.append(f"{out} = {kind}_difference({given}, a{i})")
    return lines


def _load(i: int) -> str:
    return f"tl.load(weight{i} + r * H * H + square)"


def _held(i: int, kinds: Kinds) -> str:
    """Return the weight of a backward pass, loaded anew where three or more do not fit into shared memory."""
    return f"w{i}" if kinds.count(LINEAR) < 3 else f"({_load(i)} if TYPE == tl.float32 else w{i})"


def _forward(kinds: Kinds) -> str:
    arguments = ["x", "received", "scale", "out", *_named("weight", kinds, WEIGHTED), *_named("base", kinds, CURVED)]
    body = [
        "node = tl.program_id(0).to(tl.int64)",
        "strains = tl.program_id(1) * BB + tl.arange(0, BB)",
        "columns = tl.arange(0, H)",
        "across = columns[None, :] * H + columns[:, None]",
        "there = strains < B",
        "rows = (node * B + strains)[:, None] * H + columns[None, :]",
        "total = tl.zeros((BB, H), tl.float32)",
        "for r in range(R):",
        *_indented([*_GIVEN, *_steps(kinds, kept=False)]),
        "    if SUMMED:",
        "        total += d",
        "    else:",
        "        at = out + (r + node * 0) * N * B * H + rows  # of 64 bits",
        "        tl.store(at, d.to(out.dtype.element_ty), mask=there[:, None])",
        "if SUMMED:",
        "    tl.store(out + rows, total.to(out.dtype.element_ty), mask=there[:, None])",
    ]
    return _function("forward", [*arguments, _SIZES, *_eps(kinds)], body)


def _backward(kinds: Kinds) -> str:
    arguments = ["x", "received", "scale", "grad", "of_received", "of_scale", *_named("weight", kinds, WEIGHTED)]
    arguments += [*_named("base", kinds, CURVED), *_named("of_weight", kinds, WEIGHTED)]
    arguments += [*_named("of_base", kinds, CURVED), _SIZES, *_eps(kinds)]
    before, back, after = [], [], []
    for i, kind in reversed(list(enumerate(kinds))):
        if kind == LINEAR:
            before += [f"w{i} = {_load(i)}", f"t{i} = tl.zeros((H, H), tl.float32)"]
            after.append(f"tl.store(of_weight{i} + place * H * H + square, t{i})")
            back += [f"t{i} = weight_gradient(d{i}, g.to(TYPE), t{i})", f"g = product(g.to(TYPE), {_held(i, kinds)})"]
            continue
        if kind == NORM:
            before.append(f"gamma{i} = tl.load(weight{i} + r * H + columns)")
            before.append(f"t{i} = tl.zeros((H,), tl.float32)")
            after.append(f"tl.store(of_weight{i} + place * H + columns, t{i})")
            back += [f"t{i} += tl.sum(g * n{i}, 0)", f"g *= gamma{i}[None, :]"]
            back.append(f"g, s{i} = norm_gradient(d{i}, a{i}, g, eps{i}, H)")
        else:
            back.append(f"g, s{i} = {kind}_gradient(d{i}, a{i}, g)")
        back.append(f"tl.store(of_base{i} + ((tile * R + r) * N + node) * H + columns, s{i})")
    loop = [
        "node = number + 0 * tile  # of 64 bits",
        *_GIVEN,
        "d0 = d",
        *_steps(kinds, kept=True),
        "g = load_rows(grad, node if SUMMED else r * N + node, strains, columns, there, B, H)",
        *back,
        "if HAS_X:",
        "    of_scale_r += tl.sum(g * x_rows, 1)",
        "rows = of_received + ((r * N + node) * B + strains)[:, None] * H + columns[None, :]",
        "tl.store(rows, g.to(of_received.dtype.element_ty), mask=there[:, None])",
    ]
    body = [
        "part, r, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)",
        "place = (tile * tl.num_programs(0) + part) * R + r",
        "strains = tile * BB + tl.arange(0, BB)",
        "columns = tl.arange(0, H)",
        "square = columns[:, None] * H + columns[None, :]",
        "there = strains < B",
        "of_scale_r = tl.zeros((BB,), tl.float32)",
        *before,
        "for number in range(part, N, tl.num_programs(0)):",
        *_indented(loop),
        *after,
        "tl.store(of_scale + place, tl.sum(of_scale_r, 0))",
    ]
    return _function("backward", arguments, body)


TEXTS: dict[str, Callable[[Kinds], str]] = {
    "base_forward": _base_forward,
    "base_backward": _base_backward,
    "forward": _forward,
    "backward": _backward,
}
