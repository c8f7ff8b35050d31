"""What the documentation's tests share: a small clone, and the list of blocks that were run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block

Note = Callable[[Block, str], None]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the experiments, as after ``git clone``."""
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Note:
    """Remember what was done with a block, for the list at the end."""

    def remember(block: Block, what: str) -> None:
        record_property("block", f"{block}  {block.language}: {what}")

    return remember


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the list where the documentation alone is tested; it is also written to ``docs/_build/blocks.txt``."""
    if not any("docs" in Path(argument).parts for argument in config.args):
        return
    noted = {
        str(value)
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for key, value in getattr(report, "user_properties", [])
        if key == "block"
    }
    if noted:
        read = ": read by its parser"
        noted = {line for line in noted if not (line.endswith(read) and line.removesuffix(read) + ": run" in noted)}
        lines = sorted(noted, key=lambda line: (line.partition(":")[0], int(line.partition(":")[2].split()[0])))
        terminalreporter.section("blocks of the documentation")
        for line in lines:
            terminalreporter.write_line(line)
        listing = ROOT / "docs" / "_build" / "blocks.txt"
        listing.parent.mkdir(parents=True, exist_ok=True)
        listing.write_text("\n".join(lines) + "\n")
