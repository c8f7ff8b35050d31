"""Measure what stores of many strains cost to build and to read."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dglcell.data.columns import columns_of
from dglcell.data.dataset import strains_of_cell
from dglcell.data.store import Store
from dglcell.data.store_build import build_store
from dglcell.data.strains import Strains
from dglcell.files.atomic import write_json
from dglcell.graph.vocabulary import Vocabulary
from dglcell.machine.memory import status
from dglcell.machine.processor import processor_name
from dglcell.runs.usage import environment, resident_peak

if TYPE_CHECKING:
    from dglcell.data.datamodule import StrainDataModule


GENES = 6607
BLOCK_STRAINS = 2**17
BATCH_SIZE = 1024
PHENOTYPE = "trigenic_interaction"
NAMES = tuple(f"Y{i:05d}" for i in range(GENES))


def triples(strains: int, seed: int = 0) -> Iterator[Strains]:
    """Yield random trigenic strains, a block at a time."""
    rng = np.random.default_rng(seed)
    for start in range(0, strains, BLOCK_STRAINS):
        count = min(BLOCK_STRAINS, strains - start)
        first = rng.integers(0, GENES, count)
        steps = rng.integers(1, GENES // 3, (2, count))
        genes = np.stack([first, first + steps[0], first + steps[0] + steps[1]], axis=1) % GENES
        labels = {PHENOTYPE: rng.normal(0, 0.06, count).astype(np.float32)}
        offsets = np.arange(count + 1, dtype=np.int64) * 3
        yield Strains(NAMES, genes.ravel().astype(np.int32), offsets, columns_of(phenotype=labels))


def build(path: Path, strains: int) -> dict[str, float]:
    """Build a store, and return time, bytes on disk, and peak memory of the process, in all and after its imports."""
    before, began, cpu = resident_peak(), time.perf_counter(), time.process_time()
    store = build_store(triples(strains), path, command="store_scale")
    seconds = time.perf_counter() - began
    return {
        "strains": strains,
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu,
        "strains_per_s": strains / seconds,
        "file_bytes": store.file_size,
        "bytes_per_strain": store.file_size / strains,
        "peak_bytes": resident_peak(),
        "peak_bytes_above_imports": resident_peak() - before,
    }


def load(path: Path) -> dict[str, float]:
    """Read a store into resident tensors."""
    vocabulary = Vocabulary.of(NAMES)
    before, began, cpu = resident_peak(), time.perf_counter(), time.process_time()
    table = Store(path).read()
    read = time.perf_counter() - began
    dataset = strains_of_cell(table, vocabulary)
    seconds = time.perf_counter() - began
    tensors = (dataset.targets, dataset.offsets, dataset.labels, dataset.rows)
    return {
        "strains": len(dataset),
        "read_seconds": read,
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu,
        "strains_per_s": len(dataset) / seconds,
        "resident_bytes": sum(tensor.nbytes for tensor in tensors),
        "peak_bytes": resident_peak(),
        "peak_bytes_above_imports": resident_peak() - before,
    }


def resident(path: Path) -> dict[str, Any]:
    """Make all batches of an epoch from memory, in random order; nine tenths of the strains are training."""
    # Lightning is imported only here, because it takes more memory than building and loading.
    from dglcell.data.datamodule import StrainDataModule

    dataset = strains_of_cell(Store(path).read(), Vocabulary.of(NAMES))
    part = torch.from_numpy(_parts(len(dataset)))
    parts = {name: (part == code).nonzero().squeeze(1) for code, name in enumerate(("train", "validation", "test"))}
    module = StrainDataModule(dataset, parts, batch_size=BATCH_SIZE, eval_batch_size=BATCH_SIZE, seed=0)
    return _epoch(module)


PHASES: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "build": build,
    "load": lambda path, _: load(path),
    "resident": lambda path, _: resident(path),
}


def _parts(strains: int) -> np.ndarray:
    """Return the parts: nine tenths training, a twentieth validation and test each."""
    return np.random.default_rng(1).choice(3, strains, p=[0.9, 0.05, 0.05]).astype(np.uint8)


def _epoch(module: StrainDataModule) -> dict[str, Any]:
    """Make all training batches without using them."""
    device, strains, checksum = torch.device("cpu"), 0, 0
    with peak_of_program() as peak:
        began, cpu = time.perf_counter(), time.process_time()
        for numbers in module.train_dataloader():
            batch = module.transfer_batch_to_device(numbers, device, 0)
            strains += len(batch)
            checksum += int(batch.rows.sum())
        seconds = time.perf_counter() - began
    return {
        "strains": strains,
        "batch_size": BATCH_SIZE,
        "checksum_of_strain_numbers": checksum,
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu,
        "strains_per_s": strains / seconds,
        "epoch_anonymous_bytes_above_before": peak["above"],
        "peak_anonymous_bytes": peak["bytes"],
    }


@contextmanager
def peak_of_program() -> Iterator[dict[str, int]]:
    """Record the most memory that the program held meanwhile, without pages of mapped files; 0 except on Linux."""
    done, peak = threading.Event(), {"bytes": 0, "above": 0}
    before = _anonymous_bytes()

    def watch() -> None:
        while True:
            peak["bytes"] = max(peak["bytes"], _anonymous_bytes())
            peak["above"] = peak["bytes"] - before
            if done.wait(0.02):
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _anonymous_bytes() -> int:
    return status("RssAnon") or 0


def measure(phase: str, path: Path, strains: int) -> dict[str, Any]:
    """Measure one phase in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, str(path), "--strains", str(strains), "--phase", phase]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure all phases, or one of them here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, help="where the store is built; it must not be there")
    parser.add_argument("--strains", type=int, default=2_000_000)
    parser.add_argument("--phase", choices=PHASES, help="this one only, in this process")
    parser.add_argument("--output", type=Path, help="where the numbers go as JSON")
    options = parser.parse_args()
    if options.phase:
        print(json.dumps(PHASES[options.phase](options.store, options.strains)))
        return
    command = shlex.join(["python", "-m", __spec__.name, *sys.argv[1:]])
    about = environment(command) | {"processor": processor_name(), "load_average": os.getloadavg()}
    result: dict[str, Any] = {"environment": about}
    for phase in PHASES:
        result[phase] = measure(phase, options.store, options.strains)
        print(phase, json.dumps(result[phase]))
    if options.output:
        write_json(options.output, result)


if __name__ == "__main__":
    main()
