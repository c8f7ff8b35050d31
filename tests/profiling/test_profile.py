"""Profiles of a few real steps: accounting, files, modes, models, processes."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import pytest

from dglcell.cli import main
from dglcell.errors import DataError
from dglcell.machine.parts import PARTS
from dglcell.profiling.measure import WATCHED, Schedule, profile
from dglcell.profiling.profile import Profile, format_profile, read_profile
from tests.tiny import Tiny, dglcell

STEPS, WARM_UP = 3, 1
FORWARD = {"perturbation", "aggregation", "updates", "pooling", "heads", "loss"}


def run(tiny: Tiny, folder: Path, *overrides: str, steps: int = STEPS, warm_up: int = WARM_UP) -> Profile:
    config = tiny.config(folder / "runs", *overrides)
    found = profile(config, Schedule(warm_up, steps), folder / "profile", "dglcell profile tiny")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profile")


@pytest.fixture(scope="module")
def full(tiny: Tiny, folder: Path) -> Profile:
    """Whole steps of the tiny experiment, with all its relations."""
    return run(tiny, folder, "model.layers=2", "data.batch_size=100")


def test_exclusive_times_sum_up_to_the_steps(full: Profile) -> None:
    assert len(full.steps) == STEPS
    assert all(seconds > 0 for seconds in full.steps)
    assert sum(full.components.values()) == pytest.approx(sum(full.steps), rel=1e-9)
    assert sum(full.per_step().values()) == pytest.approx(full.seconds_per_step, rel=1e-9)
    assert min(full.components.values()) >= 0


def test_every_component_of_a_step_is_told_apart(full: Profile) -> None:
    assert set(full.per_step()) == FORWARD | {"data", "backward", "optimiser", "other"}
    relations = {"catalyses", "catalysed_by", "converted_by", "converts"}
    assert set(full.edges) == relations
    # Two rounds: nothing that ends in metabolites reaches the genes.
    assert {name.partition("/")[2] for name in full.parts("aggregation")} <= relations
    assert len(full.parts("aggregation")) == 3


def test_strains_are_those_of_the_timed_steps(full: Profile) -> None:
    # 240 strains in batches of 100: an epoch ends with 40, and another begins. The first step is a warm-up.
    assert full.samples == 100 + 40 + 100
    assert full.samples_per_second == pytest.approx(full.samples / sum(full.steps))
    assert full.speed().startswith(f"{len(full.steps) / sum(full.steps):,.2f} it/s, ")


def test_the_trace_is_of_more_steps_with_their_parts_and_operators(full: Profile, folder: Path) -> None:
    with gzip.open(folder / "profile" / "trace.json.gz") as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
    own = [event for event in events if event["cat"] == "user_annotation"]
    steps = [event for event in own if event["name"] == "step"]
    assert len(steps) == WATCHED
    assert set(full.components) <= {event["name"] for event in own}
    # Parts lie in steps, but for those of the step in which the profiler warms up.
    for event in own:
        if event["name"].partition("/")[0] in PARTS and event["ts"] >= steps[0]["ts"]:
            (step,) = (one for one in steps if one["ts"] <= event["ts"] <= one["ts"] + one["dur"])
            assert event["ts"] + event["dur"] <= step["ts"] + step["dur"]
    assert {"aten::mm", "aten::index_select"} & {event["name"] for event in events}


def test_conditions_are_written_beside_the_times(full: Profile, folder: Path) -> None:
    content = json.loads((folder / "profile" / "profile.json").read_text())
    assert content["device"].startswith("cpu: ")
    assert content["clock"] == "host"
    assert (content["world_size"], content["batch_size"], content["dtype"]) == (1, 100, "32-true")
    assert (content["model"], content["strategy"]) == ("hetero_cell", "node_mask")
    parts = {"strategy", "dense_share", "kernels", "reasons", "differences", "compile", "shares"}
    assert set(content["autotuned"]) == parts
    assert content["nodes"]["gene"] == 137
    assert len(content["cell_sha256"]) == 64
    assert content["environment"]["command"] == "dglcell profile tiny"
    assert (content["bytes_to_device"], content["synchronisations"]) == (0, None)
    assert content["peak_memory_bytes"] > 0
    assert sum(content["derived"]["shares"].values()) == pytest.approx(1)
    assert read_profile(folder / "profile") == read_profile(folder / "profile" / "profile.json") == full


def test_nothing_of_a_run_is_written(full: Profile, folder: Path) -> None:
    assert sorted(path.name for path in (folder / "profile").iterdir()) == ["profile.json", "trace.json.gz"]
    assert not (folder / "runs").exists()


def test_the_table_says_what_was_measured(full: Profile) -> None:
    printed = format_profile(full)
    for text in (
        "tiny: 3 steps after 1 to warm up",
        "1 process x 100 strains; 32-true; 1 thread; clock: host",
        "copied to the device    not applicable on a CPU",
        "host-device syncs       not applicable on a CPU",
        "samples/s",
        "  catalysed_by",
        "100.0%",
    ):
        assert text in printed
    gpu = dataclasses.replace(full, synchronisations=4, bytes_to_device=1234, peak_memory_bytes=None)
    assert "host-device syncs       4/step" in format_profile(gpu)
    assert "copied to the device    1,234 bytes/step" in format_profile(gpu)
    assert "peak memory             not measured" in format_profile(gpu)


def test_a_step_that_takes_much_longer_than_the_others_is_told(full: Profile) -> None:
    even = dataclasses.replace(full, steps=[1.0, 1.5, 1.9])
    assert "uneven" not in format_profile(even)
    uneven = dataclasses.replace(full, steps=[1.0, 1.0, 3.0])
    assert "the slowest step took 3.0 times the median" in format_profile(uneven)


MODELS = {
    "gatv2": ("model.conv=gatv2", "model.strategy=difference"),
    "set_operator": ("model={name: set_operator, hidden: 8, layers: 1, local_heads: 2, operator: both}",),
    "dango": (
        "cell.derived=[shares_complex]",
        "model={name: dango, hidden: 8, relations: [shares_complex], zero_weights: {shares_complex: 1.0}}",
        "loss={name: dango}",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_divided(tiny: Tiny, tmp_path: Path, name: str) -> None:
    found = run(tiny, tmp_path, *MODELS[name], steps=1, warm_up=0)
    common = {"data", "aggregation", "updates", "heads", "loss", "backward", "optimiser", "other"}
    own = {"pooling", "perturbation"} if name != "dango" else set()
    assert set(found.per_step()) == common | own
    assert sum(found.components.values()) == pytest.approx(sum(found.steps), rel=1e-9)
    if name == "dango":
        assert set(found.parts("aggregation")) == {"aggregation/shares_complex"}
        assert set(found.parts("loss")) == {"loss/reconstruction"}


@pytest.mark.slow
def test_two_processes_say_how_long_they_wait_for_each_other(tiny: Tiny, tmp_path: Path) -> None:
    ddp = ("trainer.devices=2", "trainer.strategy=ddp", "data.batch_size=60")
    arguments = ("--steps", "2", "--warm-up", "1", "-o", tmp_path / "two")
    done = dglcell("profile", tiny.file, *tiny.overrides(tmp_path, *ddp), *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("2 processes x 60 strains") == 1
    # What PyTorch's profiler says of itself is nobody's concern.
    assert "USDT" not in done.stderr + done.stdout
    found = read_profile(tmp_path / "two")
    assert found.world_size == 2
    # 120 strains of each: an epoch is two batches.
    assert found.samples == 2 * 2 * 60
    assert found.components["communication"] > 0
    assert sum(found.components.values()) == pytest.approx(sum(found.steps), rel=1e-9)


def test_the_command_line_prints_and_says_where_files_are(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--steps", "2", "--warm-up", "0"]
    assert main(["profile", str(tiny.file), *tiny.overrides(tmp_path), *options]) == 0
    printed = capsys.readouterr().out
    assert "tiny: 2 steps after 0 to warm up" in printed
    folder = tmp_path / "tiny" / "profile"
    assert f"profile  {folder / 'profile.json'}\ntrace    {folder / 'trace.json.gz'}\n" in printed
    with gzip.open(folder / "trace.json.gz") as file:
        content = json.load(file)
    assert content["experiment"] == "tiny"


def test_missing_and_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no profile at '.*'\n  expected: a profile\.json or its folder\n  do: "):
        read_profile(tmp_path)
    for content in ("{", "[]", '{"steps": []}', "3"):
        (tmp_path / "profile.json").write_text(content)
        with pytest.raises(DataError, match=r"profile\.json' is no profile\n  got: "):
            read_profile(tmp_path)


@pytest.mark.parametrize("steps", ["0", "-1", "x", "1.5"])
def test_a_number_of_steps_is_positive(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["profile", "experiment.yaml", f"--steps={steps}"])
    assert f"'{steps}' is not a number of 1 or more" in capsys.readouterr().err
