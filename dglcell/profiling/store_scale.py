"""How a store of many strains behaves: bytes, time and peak memory of building and loading it.

``python -m dglcell.profiling.store_scale FOLDER --strains 20000000 --output FILE`` builds and loads a store of random
trigenic strains, each in a process of its own, whose peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dglcell.data.dataset import StrainDataset
from dglcell.data.store import Store
from dglcell.data.store_build import build_store_from_blocks
from dglcell.data.table import Provenance, StrainTable, TableHead
from dglcell.files import write_json
from dglcell.graph.vocabulary import Vocabulary

GENES = 6607
BLOCK_STRAINS = 2**17
PHENOTYPE = "trigenic_interaction"
HEAD = TableHead(tuple(f"Y{i:05d}" for i in range(GENES)), (PHENOTYPE,), Provenance("random triples"))


def triples(strains: int, seed: int = 0) -> Iterator[StrainTable]:
    """Random trigenic strains, a block at a time."""
    rng = np.random.default_rng(seed)
    for start in range(0, strains, BLOCK_STRAINS):
        count = min(BLOCK_STRAINS, strains - start)
        first = rng.integers(0, GENES, count)
        steps = rng.integers(1, GENES // 3, (2, count))
        genes = np.stack([first, first + steps[0], first + steps[0] + steps[1]], axis=1) % GENES
        labels = {PHENOTYPE: rng.normal(0, 0.06, count).astype(np.float32)}
        offsets = np.arange(count + 1, dtype=np.int64) * 3
        yield StrainTable(HEAD.names, genes.ravel().astype(np.int32), offsets, labels, HEAD.provenance)


def build(path: Path, strains: int) -> dict[str, float]:
    """Build a store: time, bytes on disk, peak memory of the process and how much of it came after its imports."""
    before, began, cpu = peak_bytes(), time.perf_counter(), time.process_time()
    store = build_store_from_blocks(HEAD, triples(strains), path, command="store_scale")
    seconds = time.perf_counter() - began
    return {
        "strains": strains,
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu,
        "strains_per_s": strains / seconds,
        "file_bytes": store.file_size,
        "bytes_per_strain": store.file_size / strains,
        "peak_bytes": peak_bytes(),
        "peak_bytes_above_imports": peak_bytes() - before,
    }


def load(path: Path) -> dict[str, float]:
    """Read a store into resident tensors."""
    vocabulary = Vocabulary.of(HEAD.names)
    before, began, cpu = peak_bytes(), time.perf_counter(), time.process_time()
    table = Store(path).read()
    read = time.perf_counter() - began
    dataset = StrainDataset.from_table(table, vocabulary)
    seconds = time.perf_counter() - began
    tensors = (dataset.genes, dataset.offsets, dataset.labels, dataset.rows)
    return {
        "strains": len(dataset),
        "read_seconds": read,
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu,
        "strains_per_s": len(dataset) / seconds,
        "resident_bytes": sum(tensor.nbytes for tensor in tensors),
        "peak_bytes": peak_bytes(),
        "peak_bytes_above_imports": peak_bytes() - before,
    }


def peak_bytes() -> int:
    """Most memory that this process has held; of its program alone where the system tells (Linux)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def measure(phase: str, path: Path, strains: int) -> dict[str, Any]:
    """One phase (``build`` or ``load``) in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, str(path), "--strains", str(strains), "--phase", phase]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure both phases, or one of them here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, help="where the store is built; it must not be there")
    parser.add_argument("--strains", type=int, default=2_000_000)
    parser.add_argument("--phase", choices=("build", "load"), help="this one only, in this process")
    parser.add_argument("--output", type=Path, help="where the numbers go as JSON")
    options = parser.parse_args()
    if options.phase:
        print(json.dumps(build(options.store, options.strains) if options.phase == "build" else load(options.store)))
        return
    from dglcell.training.environment import environment

    command = shlex.join(["python", "-m", __spec__.name, *sys.argv[1:]])
    result: dict[str, Any] = {"environment": {**environment(command), "load_average": os.getloadavg()}}
    for phase in ("build", "load"):
        result[phase] = measure(phase, options.store, options.strains)
        print(phase, json.dumps(result[phase]))
    if options.output:
        write_json(options.output, result)


if __name__ == "__main__":
    main()
