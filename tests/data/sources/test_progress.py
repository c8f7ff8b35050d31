"""Progress of long computations where there is no terminal."""

from __future__ import annotations

import pytest

from dglcell.data.sources.insilico import progress_bars


def test_lines_are_logged_where_there_is_no_terminal(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("INFO", logger="dglcell")
    with progress_bars() as begin:
        advance = begin("linear programs", 12345)
        advance()
        assert caplog.messages == ["linear programs: 12,345"]
    assert caplog.messages[1].startswith("done after ")
    assert capsys.readouterr().err == ""


def test_a_failure_is_passed_on_and_not_called_done(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="dglcell")
    with pytest.raises(KeyError), progress_bars() as begin:
        begin("linear programs", 2)
        raise KeyError
    assert caplog.messages == ["linear programs: 2"]
