"""Count lines and files by folder, and compare with the budget of pyproject.toml, which `--lower` lowers."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADING = "[tool.dglcell.budget]"


def folder_of(path: str) -> str:
    """Return what a file counts for: a folder of dglcell, dglcell itself, tests or benchmarks."""
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "dglcell" and len(parts) > 2 else parts[0]


def count() -> dict[str, tuple[int, int]]:
    """Return folder → lines and files of Python, as git knows the files."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "dglcell", "tests", "benchmarks"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    found: dict[str, tuple[int, int]] = {}
    for path in listed:
        if path.endswith(".py") and (ROOT / path).is_file():
            lines, files = found.get(folder_of(path), (0, 0))
            found[folder_of(path)] = lines + len((ROOT / path).read_bytes().splitlines()), files + 1
    return found


def main(arguments: list[str]) -> int:
    """Compare, or lower the budget; return 1 where a folder is above it."""
    project = ROOT / "pyproject.toml"
    text, found = project.read_text(), count()
    budget = {name: tuple(of) for name, of in tomllib.loads(text)["tool"]["dglcell"]["budget"].items()}
    if "--lower" in arguments:
        budget = {
            name: (min(lines, found[name][0]), min(files, found[name][1]))
            for name, (lines, files) in budget.items()
            if name in found
        }
        table = "".join(f'"{name}" = [{lines}, {files}]\n' for name, (lines, files) in sorted(budget.items()))
        before, _, after = text.partition(HEADING + "\n")
        project.write_text(before + HEADING + "\n" + table + "\n" + after.partition("\n\n")[2])
    none = (0, 0)
    above = {name for name, of in found.items() if any(map(int.__gt__, of, budget.get(name, none)))}
    for name in sorted(budget.keys() | found.keys()):
        lines, files = found.get(name, none)
        if (lines, files) != budget.get(name):
            state = "above its budget of" if name in above else "can be lowered from"
            print(f"{name}: {lines:,} lines in {files} files, {state} {budget.get(name, none)}")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
