"""Commands that are killed at any change of a file: nothing is torn, and given again they end as if never killed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.commands import (
    COMMANDS,
    Command,
    Ended,
    Kill,
    Killer,
    contents,
    differences,
    killer,
    unfinished,
    write_files,
)


@dataclass
class Laboratory:
    killer: Killer  #: runs them
    folder: Path  #: everything lies below it, the commands' own files in ``root``, which every one of them begins anew
    outcomes: dict[str, Ended] = field(default_factory=dict)  #: of commands that were left alone, by name

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def kept(self, name: str) -> Path:
        return self.folder / "kept" / name

    def run(self, command: Command, kill: Kill | None = None) -> Ended:
        return self.killer.run(command.words(self.folder / "files", self.root), self.root, kill)

    def begin(self, command: Command) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        if command.after is None:
            self.root.mkdir()
        else:
            self.undisturbed(COMMANDS[command.after])
            shutil.rmtree(self.root, ignore_errors=True)
            shutil.copytree(self.kept(command.after), self.root)

    def undisturbed(self, command: Command) -> Ended:
        if command.name not in self.outcomes:
            self.begin(command)
            ended = self.run(command)
            assert ended.status == 0, ended.output
            shutil.copytree(self.root, self.kept(command.name))
            self.outcomes[command.name] = ended
        return self.outcomes[command.name]

    def check(self, command: Command, kills: Sequence[Kill]) -> list[str]:
        changes = self.undisturbed(command).changes
        expected = contents(self.kept(command.name))
        wrong, known = [], set[str]()
        for kill in kills:
            self.begin(command)
            killed = self.run(command, kill)
            where = f"{command.name}: {kill}, {changes[kill.at - 1]}"
            if not killed.was_killed:
                wrong.append(f"{where}: ended with {killed.status}\n{killed.output}")
                continue
            try:
                left = contents(self.root)
            except Exception as error:
                wrong.append(f"{where}: a file is torn: {error!r}")
                continue
            state = repr([left, [re.sub(r"\.(partial|after)-.*", "", name) for name in unfinished(self.root)]])
            if state in known:
                continue
            known.add(state)
            again = self.run(command)
            if command.complete and command.complete in again.output and left == expected:
                continue
            if again.status != 0:
                wrong.append(f"{where}: given again it ends with {again.status}\n{again.output}")
            else:
                wrong += [f"{where}: {text}" for text in differences(expected, self.root)]
        print(f"{command.name}: {len(kills)} kills, {len(known)} different outcomes, {len(wrong)} wrong")
        return wrong


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    folder = tmp_path_factory.mktemp("faults")
    write_files(folder / "files", folder / "root")
    with killer(folder) as running:
        yield Laboratory(running, folder)


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.sample])
def test_a_command_that_was_killed_goes_on(laboratory: Laboratory, name: str) -> None:
    command = COMMANDS[name]
    kills = laboratory.undisturbed(command).kills()
    chosen = [kills[(2 * i + 1) * len(kills) // (2 * command.sample)] for i in range(command.sample)]
    wrong = laboratory.check(command, chosen)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_goes_on_wherever_it_was_killed(laboratory: Laboratory, name: str) -> None:
    wrong = laboratory.check(COMMANDS[name], laboratory.undisturbed(COMMANDS[name]).kills())
    assert not wrong, "\n".join(wrong)


def test_a_store_that_is_replaced_is_never_missing(laboratory: Laboratory) -> None:
    command = COMMANDS["rebuild"]
    for number, change in enumerate(laboratory.undisturbed(command).changes[:-1], start=1):
        if change.startswith(("rename", "unlink", "rmdir")):  # nothing else takes a name away
            laboratory.begin(command)
            assert laboratory.run(command, Kill(number + 1)).was_killed
            assert (laboratory.root / "store").exists(), change
