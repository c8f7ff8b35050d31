"""Describe this machine to the processes of a run: its devices, threads, memory and processor."""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import re
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.errors import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    import torch  # the command line starts without it

log = logging.getLogger("dglcell")


def device_of(accelerator: str) -> str:
    """Return torch's name, ``cpu`` or ``cuda``, of an accelerator that is given by Lightning's name."""
    import torch

    return "cuda" if accelerator in ("gpu", "cuda") or (accelerator == "auto" and torch.cuda.is_available()) else "cpu"


def device_here(accelerator: str) -> str:
    """Return where a trained model is evaluated: its accelerator's device, or the CPU where this machine lacks that."""
    import torch

    device = device_of(accelerator)
    if device == "cuda" and not torch.cuda.is_available():
        log.info("torch sees no GPU: evaluating on the CPU")
        return "cpu"
    return device


def check_device(device: str) -> None:
    """Refuse a device that torch does not have here."""
    import torch

    if device.split(":")[0] not in ("cpu", "cuda"):
        raise ConfigError("unknown device", got=device, expected="cpu or cuda")
    if device != "cpu" and not torch.cuda.is_available():
        do = "use `cpu`; `dglcell doctor` says what there is"
        raise MissingDependencyError(f"device '{device}' asked for, but torch sees no GPU", do=do)


@dataclass(frozen=True)
class Ranks:
    """Hold the number of this process among the processes of a run, and how many there are."""

    rank: int = 0  #: number of this process, from 0
    size: int = 1  #: number of processes
    local: int = 0  #: number of this process on its machine
    here: int = 1  #: number of processes on its machine, 1 where that is not known

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Ranks:
        """Return the ranks that the launcher of this process gives; without a launcher the process is the only one."""
        for names in (
            ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
            # SLURM_NTASKS is not used: a job's script has it too, although it is a single process.
            ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
        ):
            if names[0] in environment and names[1] in environment:
                found = cls(*(number_of(environment, name, d) for name, d in zip(names, (0, 1, 0, 1), strict=True)))
                if found.rank >= found.size:
                    what = f"the variables {names[0]} and {names[1]} contradict each other"
                    got = f"{names[0]}={found.rank}, {names[1]}={found.size}"
                    raise ConfigError(what, got=got, do="start the processes with torchrun or srun, which set them")
                return found
        return cls()

    @property
    def name(self) -> str:
        """Return the name of this process for messages, counted from 1."""
        return f"process {self.rank + 1} of {self.size}"


ALONE = Ranks()


def number_of(environment: Mapping[str, str], name: str, default: int) -> int:
    """Return the number in a variable that torchrun or SLURM sets, or a default where it is not set."""
    text = environment.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ConfigError(f"the variable {name} is no number", got=text, do="torchrun or SLURM sets it: do not set it")
    return int(text)


# Processor and threads.

PROC = Path("/proc")


@cache
def _description() -> str:
    try:
        return (PROC / "cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""


def processor_name() -> str:
    """Return the processor's name as the system gives it, else the machine's architecture."""
    found = re.search(r"^model name[ \t]*:[ \t]*(.+)$", _description(), re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def multiplies_bfloat16() -> bool:
    """Return whether the processor has instructions for products of bfloat16."""
    return any(flag in _description() for flag in ("avx512_bf16", "amx_bf16"))


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allotted_cores() -> int:
    """Return how many cores this process may keep busy; at least 1.

    These are the cores that affinity and control groups leave to it, shared among the processes of a run on its
    machine, or those of its SLURM task. ``OMP_NUM_THREADS`` may say that they are fewer.
    """
    texts = _group_limits("cpu", ("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    pairs = [" ".join(one).split() for one in texts]
    here = int(min([cores(), *(int(used) / int(period) for used, period in pairs if used.isdecimal())]))
    of_task, of_process = (os.environ.get(name, "") for name in ("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS"))
    found = min(here, int(of_task)) if of_task.isdecimal() else here // Ranks.of().here
    return max(1, min(found, int(of_process)) if of_process.isdecimal() else found)


def set_threads(number: int | None) -> None:
    """Compute with a number of threads in this process; None for the cores that are allotted to it."""
    import torch

    torch.set_num_threads(number or allotted_cores())


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Compute with a number of threads inside the context, as ``set_threads`` sets it."""
    import torch

    before = torch.get_num_threads()
    set_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# Memory.

PROCESS = PROC / "self"
CONTROL_GROUPS = Path("/sys/fs/cgroup")


def keep_freed_memory() -> bool:
    """Let glibc keep what tensors free, instead of giving it back to the system after every operator.

    By default each large tensor is mapped anew, and the first write to every page of it is a page fault: in dense
    steps over a yeast-size cell that was more than half of the time. Returns whether the C library took the advice.
    """
    if not sys.platform.startswith("linux") or not hasattr(library := ctypes.CDLL(None), "mallopt"):
        return False
    mmap_max, trim_threshold = (-4, 0), (-1, 2**31 - 1)  # parameters of mallopt(3) and their values
    return all([bool(library.mallopt(*setting)) for setting in (mmap_max, trim_threshold)])


def free_memory(device: torch.device) -> int | None:
    """Return how many bytes this process can still get on a device, its share of it; None where nobody says."""
    import torch

    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    room = available_memory()
    return None if room is None else room // Ranks.of().here


def available_memory() -> int | None:
    """Return how many bytes this process can still get from the machine and within the limit of its control group."""
    free = [kilobytes(PROC / "meminfo", "MemAvailable")]
    names = ("memory.max", "memory.current", "memory.stat")
    older = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
    for limit, usage, stat in _group_limits("memory", names, older):
        if limit.isdecimal():  # files in the page cache do not count as used
            cached = re.search(r"^(?:file|total_cache) (\d+)$", stat, re.MULTILINE)
            free.append(int(limit) - int(usage) + (int(cached[1]) if cached else 0))
    return min((value for value in free if value is not None), default=None)


def _group_limits(controller: str, files: Sequence[str], older: Sequence[str]) -> Iterator[list[str]]:
    """Yield texts of each control group that limits this process; the names of files are ``older`` in version 1."""
    try:
        lines = (PROCESS / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number != "0" and controller not in controllers.split(","):
            continue
        root, names = (CONTROL_GROUPS, files) if number == "0" else (CONTROL_GROUPS / controller, older)
        folder = root / path.lstrip("/")
        for group in [one for one in (folder, *folder.parents) if one.is_relative_to(root)]:
            with suppress(OSError):
                yield [(group / name).read_text(encoding="utf-8").strip() for name in names]


def kilobytes(path: Path, key: str) -> int | None:
    """Return a number of a file of /proc in bytes; None where it is not there."""
    try:
        found = re.search(rf"^{key}:\s+(\d+) kB", path.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None


def resident_peak() -> int:
    """Return the high-water mark of this process's resident set in bytes."""
    unit = 1 if platform.system() == "Darwin" else 1024
    return kilobytes(PROCESS / "status", "VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed, as reported by Python, torch, CUDA, DGL, MKL or oneDNN."""
    # Few of their errors have own types.
    texts = (
        *("can't allocate memory", "Cannot allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED"),
        *("bad_alloc", "create a primitive", "Storage size calculation overflowed", "failed to map segment"),
    )
    return isinstance(error, MemoryError) or any(text in str(error) for text in texts)
