"""The processor: its name, and which of its cores are idle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dglcell.machine import processor
from dglcell.machine.processor import BFLOAT16_FLAGS, cores, idle_cores, multiplies_bfloat16, processor_name


def test_name_and_flags_are_those_of_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert processor_name()
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: Abacus 3000\nflags : fpu avx512_bf16\n")
    processor._description.cache_clear()
    monkeypatch.setattr(processor, "PROC", tmp_path)
    assert processor_name() == "Abacus 3000"
    assert multiplies_bfloat16()
    processor._description.cache_clear()
    monkeypatch.setattr(processor, "PROC", tmp_path / "nowhere")
    assert processor_name()
    assert not multiplies_bfloat16()
    processor._description.cache_clear()
    assert set(BFLOAT16_FLAGS) == {"avx512_bf16", "amx_bf16"}


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the system does not tell what cores do")
def test_busy_cores_are_not_idle() -> None:
    one = next(iter(os.sched_getaffinity(0)))
    code = f"import os; os.sched_setaffinity(0, [{one}])\nprint('on', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        time.sleep(0.05)
        found = min(idle_cores(0.2) for _ in range(3))
        busy.kill()
    assert 1 <= found <= max(1, cores() - 1)


def test_the_load_stands_in_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processor, "PROC", tmp_path)
    for load, expected in ((0.0, cores()), (1000.0, 1)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, load, load))
        assert idle_cores() == expected
