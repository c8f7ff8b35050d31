"""How hostile inputs are driven through the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.inputs import Input, check_message, status_of, tree, write


@pytest.fixture
def driven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Input], None]:
    """Return what runs an input: it ends with 2 and one message that names what to mend, and writes nothing."""

    def drive(hostile: Input) -> None:
        write(tmp_path, hostile.files)
        monkeypatch.chdir(tmp_path)
        for name, value in hostile.environment.items():
            monkeypatch.setenv(name, value)
        before = tree(tmp_path)
        capsys.readouterr()
        status = status_of(hostile.arguments)
        said = capsys.readouterr().err
        assert tree(tmp_path) == before, "something was written"
        assert status == 2, said
        check_message(said, hostile.says)

    return drive
