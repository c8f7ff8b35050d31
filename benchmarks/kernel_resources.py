"""Read what Triton's kernels take of a GPU from their machine code. They are compiled without a GPU and never timed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from dglcell.files.atomic import write_json
from dglcell.kernels import spmm_triton
from dglcell.kernels.triton_products import TILES, Tile

TARGETS = (80, 90)
"""These are the compute capabilities of A100, and of H100 or H200."""

NEIGHBOUR = ("LDG.E.U16", "LDG.E.U16.CONSTANT")
"""These instructions read the node at the other end of an edge, and nothing else in these kernels."""

B, H = 28, 64
"""Tiles are chosen for so many strains and columns, as in a training step at yeast size."""

TYPES = {"bfloat16": "*bf16", "float16": "*fp16", "float32": "*fp32"}


@dataclass(frozen=True)
class Variant:
    """A variant is one kernel for one kind of arguments.

    Attributes:
        kernel: its name.
        what: in which it differs from others of that name.
        function: Triton's.
        types: argument → type, for those that are no constants.
        constants: argument → value.
        warps: number of warps of a program.
        edges: number of edges whose neighbours one instruction reads; None where no loop is over edges.
        registers: most registers that a thread may take.
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
    """These are the resources that a variant takes.

    Attributes:
        registers: registers of a thread.
        spilled_bytes: bytes of local memory of a thread.
        shared_bytes: bytes of shared memory of a program.
        widest_load_bits, widest_store_bits: most bits that one instruction moves from or to the GPU's memory.
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
    """Compile a kernel of Triton, without needing a GPU."""
    names = variant.function.arg_names
    signature = {name: variant.types.get(name, "constexpr") for name in names}
    # What Triton finds out of arguments by itself: memory begins, and rows are, at multiples of 16.
    aligned = [i for i, name in enumerate(names) if signature[name].startswith("*") or name in "HD"]
    source = ASTSource(
        variant.function, signature, variant.constants, {(i,): [["tt.divisibility", 16]] for i in aligned}
    )
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": variant.warps})


def resources(variant: Variant, capability: int) -> Resources:
    """Compile a variant and read its machine code."""
    compiled = compile_variant(variant, capability)
    usage, code = (_dump(compiled.asm["cubin"], option) for option in ("-res-usage", "-sass"))
    numbers = dict(re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", usage))
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
        _per_64_edges(code, variant.edges),
    )


def _dump(cubin: bytes, option: str) -> str:
    """Return the output of cuobjdump, which comes with Triton, for machine code."""
    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tools / "cuobjdump"), option, file.name]
        environment = {"PATH": str(tools)}
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")


def _loops(code: str) -> list[list[str]]:
    """Return instructions' names in every piece of code that jumps back to its start and has no such piece within."""
    lines = [(int(at, 16), name, rest) for at, name, rest in INSTRUCTION.findall(code)]
    jumps = [(at, re.findall(r"0x([0-9a-f]+)", rest)) for at, name, rest in lines if name.startswith("BRA")]
    spans = {(int(to[-1], 16), at) for at, to in jumps if to and int(to[-1], 16) < at}
    inner = [(s, e) for s, e in spans if not any(s <= first and last <= e for first, last in spans - {(s, e)})]
    return [[name for at, name, _ in lines if start <= at <= end] for start, end in sorted(inner)]


def _per_64_edges(code: str, edges: int | None) -> float | None:
    """Count instructions per 64 edges in the loops unrolled most; reads of neighbours tell a loop's edges."""
    if edges is None:
        return None
    loops = [loop for loop in _loops(code) if any(name in NEIGHBOUR for name in loop)]
    turns = [(sum(name in NEIGHBOUR for name in loop), len(loop)) for loop in loops]
    most = max((reads for reads, _ in turns), default=1)
    return round(sum(length for reads, length in turns if reads == most) * 64 / (most * edges), 1)


def _widest(name: str, code: str) -> int:
    widths = [32, *(int(bits) for bits in re.findall(rf"\b{name}\.[\w.]*?(64|128)\b", code))]
    return max(widths) if re.search(rf"\b{name}\b", code) else 0


# These functions list every kernel in every form in which it is started.


def variants(tiles: tuple[Tile, ...] = TILES) -> Iterator[Variant]:
    """Yield all variants that a training step may start."""
    for dtype, pointer in TYPES.items():
        for masked in (False, True):
            for weighted in (False, True):
                # No run uses float16; it is here only to see how it is compiled.
                for tile in tiles[: 1 if dtype == "float16" else None]:
                    yield sum_pieces(dtype, pointer, tile, masked=masked, weighted=weighted)
            yield add_pieces(dtype, pointer, masked=masked)
        yield sum_lost(dtype, pointer)


def sum_pieces(dtype: str, pointer: str, tile: Tile, *, masked: bool, weighted: bool) -> Variant:
    """Return the variant of the product itself: of whole columns, or of what strains send."""
    BB, BH = tile.shape(B, H) if masked else tile.shape(1, B * H)
    flags = {"HAS_X": True, "WEIGHTED": weighted, "MASKED_IN": masked, "BASED": masked, "MASKED_OUT": masked}
    constants = {**flags, "ONLY_LOST": False, "SUM": tl.float32, "BB": BB, "BH": BH, "UNROLL": tile.unroll}
    types = {
        "pieces": "*i32", "neighbours": "*u16", "weights": "*fp32", "x": pointer, "base": "*fp32", "keep_in": "*u8",
        "received": "*fp32", "keep_out": "*u8", "out": pointer, "partial": "*fp32", "B": "i32", "H": "i32",
    }  # fmt: skip
    words = [dtype, "what strains send" if masked else "columns", "weighted" if weighted else "unweighted"]
    what = ", ".join([*words, f"{BB} x {BH}, {tile.unroll} edges at once"])
    return Variant("sum_pieces", what, spmm_triton.sum_pieces, types, constants, tile.warps, 1, 128)


def add_pieces(dtype: str, pointer: str, *, masked: bool) -> Variant:
    """Return the variant that sums a long row's pieces."""
    BB, BH = TILES[0].shape(B, H)
    types = {
        "rows": "*i32", "partial": "*fp32", "received": "*fp32", "keep_out": "*u8", "out": pointer,
        "B": "i32", "H": "i32",
    }  # fmt: skip
    constants = {"MASKED_OUT": masked, "SUM": tl.float32, "BB": BB, "BH": BH}
    what = f"{dtype}, {'what strains receive' if masked else 'columns'}"
    return Variant("add_pieces", what, spmm_triton.add_pieces, types, constants, 2, None, 64)


def sum_lost(dtype: str, pointer: str) -> Variant:
    """Return the variant for the gradient of lost nodes' rows."""
    types = {"x": pointer, "keep": "*u8", "out": "*fp32", "B": "i32", "H": "i32"}
    constants = {"CLEAR": True, "SUM": tl.float32, "BB": 8, "BH": 64}
    return Variant("sum_lost", dtype, spmm_triton.sum_lost, types, constants, 2, None, 64)


def main(path: Path) -> None:
    """Write the table of all kernels for all targets, with the errors that Triton's interpreter shows."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.kernel_errors"]
    errors = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    rows = [asdict(resources(variant, capability)) for capability in TARGETS for variant in variants()]
    about = {"triton": triton.__version__, "strains": B, "columns": H}
    write_json(path, {**about, "rows": rows, "interpreter_errors": errors})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results/kernel-resources.json")
