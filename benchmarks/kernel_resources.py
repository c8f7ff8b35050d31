"""What Triton's kernels take of a GPU, read from their machine code: compiled here, on no GPU, and never timed."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from dglcell.files import write_json
from dglcell.kernels import spmm_triton

TARGETS = (80, 90)
"""Compute capabilities: A100, and H100 or H200."""

B, H = 28, 64
"""Strains and columns of a training step at yeast size, by which tiles are chosen."""

TYPES = {"bfloat16": "*bf16", "float16": "*fp16", "float32": "*fp32"}


@dataclass(frozen=True)
class Variant:
    """One kernel for one kind of arguments.

    Attributes:
        kernel: its name.
        what: in which it differs from others of that name.
        function: Triton's.
        types: argument → type, for those that are no constants.
        constants: argument → value.
        warps: of a program.
        edges: that one turn of its innermost loop reads; None where the loop is not over edges.
        registers: that a thread may take.
    """

    kernel: str
    what: str
    function: Any
    types: dict[str, str]
    constants: dict[str, Any]
    warps: int
    edges: int | None
    registers: int


@dataclass(frozen=True)
class Resources:
    """What a variant takes.

    Attributes:
        registers: of a thread.
        spilled_bytes: of local memory of a thread.
        shared_bytes: of a program.
        widest_load_bits, widest_store_bits: of one instruction to or from the GPU's memory.
        per_64_edges: instructions that a warp issues for 64 edges; None where the loop is not over edges.
    """

    kernel: str
    what: str
    target: str
    warps: int
    registers: int
    spilled_bytes: int
    shared_bytes: int
    widest_load_bits: int
    widest_store_bits: int
    per_64_edges: float | None


def compile_variant(variant: Variant, capability: int) -> Any:
    """Triton's compiled kernel; needs no GPU."""
    names = variant.function.arg_names
    signature = {name: variant.types.get(name, "constexpr") for name in names}
    # What Triton finds out of arguments by itself: memory begins, and rows are, at multiples of 16.
    aligned = [i for i, name in enumerate(names) if signature[name].startswith("*") or name == "H"]
    source = ASTSource(
        variant.function, signature, variant.constants, {(i,): [["tt.divisibility", 16]] for i in aligned}
    )
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": variant.warps})


def resources(variant: Variant, capability: int) -> Resources:
    """Compile a variant and read its machine code."""
    compiled = compile_variant(variant, capability)
    usage, code = (_dump(compiled.asm["cubin"], option) for option in ("-res-usage", "-sass"))
    numbers = dict(re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", usage))
    loop = _innermost_loop(code)
    return Resources(
        variant.kernel,
        variant.what,
        f"sm_{capability}",
        variant.warps,
        int(numbers["REG"]),
        int(numbers["STACK"]) + int(numbers["LOCAL"]),
        int(compiled.metadata.shared),
        _widest("LDG", code),
        _widest("STG", code),
        None if variant.edges is None else round(loop * 64 / variant.edges, 1),
    )


def _dump(cubin: bytes, option: str) -> str:
    """What cuobjdump, which comes with Triton, says of machine code."""
    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [tools / "cuobjdump", option, file.name]
        environment = {"PATH": str(tools)}
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")


def _innermost_loop(code: str) -> int:
    """Instructions of the longest piece of code that jumps back to its start and has no such piece within it."""
    lines = [(int(at, 16), name, rest) for at, name, rest in INSTRUCTION.findall(code)]
    targets = [(at, re.findall(r"0x([0-9a-f]+)", rest)) for at, name, rest in lines if name.startswith("BRA")]
    loops = [(int(found[-1], 16), at) for at, found in targets if found and int(found[-1], 16) < at]
    innermost = [
        (start, end)
        for start, end in loops
        if not any(start <= s and e <= end and (s, e) != (start, end) for s, e in loops)
    ]
    return max((sum(start <= at <= end for at, _, _ in lines) for start, end in innermost), default=0)


def _widest(name: str, code: str) -> int:
    widths = [32, *(int(bits) for bits in re.findall(rf"\b{name}\.[\w.]*?(64|128)\b", code))]
    return max(widths) if re.search(rf"\b{name}\b", code) else 0


# Every kernel, in every form in which it is started.


def variants(tiles: tuple[spmm_triton.Tile, ...] = spmm_triton.TILES) -> Iterator[Variant]:
    """All that a training step may start."""
    for dtype, pointer in TYPES.items():
        for masked in (False, True):
            for weighted in (False, True):
                for tile in tiles:
                    yield sum_pieces(dtype, pointer, tile, masked=masked, weighted=weighted)
            yield add_pieces(dtype, pointer, masked=masked)
        yield sum_lost(dtype, pointer)


def sum_pieces(dtype: str, pointer: str, tile: spmm_triton.Tile, *, masked: bool, weighted: bool) -> Variant:
    """The product itself: of whole columns, or of what strains send."""
    BB, BH = tile.shape(B, H) if masked else tile.shape(1, B * H)
    flags = {"HAS_X": True, "WEIGHTED": weighted, "MASKED_IN": masked, "BASED": masked, "MASKED_OUT": masked}
    constants = {**flags, "ONLY_LOST": False, "SUM": tl.float32, "BB": BB, "BH": BH, "UNROLL": tile.unroll}
    types = {
        "pieces": "*i32", "neighbours": "*u16", "weights": "*fp32", "x": pointer, "base": "*fp32", "keep_in": "*u8",
        "received": "*fp32", "keep_out": "*u8", "out": pointer, "partial": "*fp32", "B": "i32", "H": "i32",
    }  # fmt: skip
    words = [dtype, "what strains send" if masked else "columns", "weighted" if weighted else "unweighted"]
    what = ", ".join([*words, f"{BB} x {BH}, {tile.unroll} edges at once"])
    return Variant("sum_pieces", what, spmm_triton.sum_pieces, types, constants, tile.warps, tile.unroll, 128)


def add_pieces(dtype: str, pointer: str, *, masked: bool) -> Variant:
    """The sum of a long row's pieces."""
    BB, BH = spmm_triton.TILES[0].shape(B, H)
    types = {
        "rows": "*i32", "partial": "*fp32", "received": "*fp32", "keep_out": "*u8", "out": pointer, "B": "i32", "H": "i32",
    }  # fmt: skip
    constants = {"MASKED_OUT": masked, "SUM": tl.float32, "BB": BB, "BH": BH}
    what = f"{dtype}, {'what strains receive' if masked else 'columns'}"
    return Variant("add_pieces", what, spmm_triton.add_pieces, types, constants, 2, None, 64)


def sum_lost(dtype: str, pointer: str) -> Variant:
    """The gradient of lost nodes' rows."""
    types = {"x": pointer, "keep": "*u8", "out": "*fp32", "B": "i32", "H": "i32"}
    constants = {"CLEAR": True, "SUM": tl.float32, "BB": 8, "BH": 64}
    return Variant("sum_lost", dtype, spmm_triton.sum_lost, types, constants, 2, None, 64)


def main(path: Path) -> None:
    """Write the table of all kernels for all targets."""
    rows = [asdict(resources(variant, capability)) for capability in TARGETS for variant in variants()]
    write_json(path, {"triton": triton.__version__, "strains": B, "columns": H, "rows": rows})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results/kernel-resources.json")
