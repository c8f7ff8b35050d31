"""The scripts in `jobs/`: those of the numbered experiments as they are now."""

from __future__ import annotations

import re
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from benchmarks.collect import RESULTS, read, usage
from dglcell.cli import main

ROOT = Path(__file__).resolve().parents[2]
RENEW = "renew it with: dglcell job render conf --output jobs --overwrite"


def scripts(folder: Path) -> dict[str, bytes]:
    """Script's path below the folder → its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.sh")}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of freshly rendered scripts."""
    folder = tmp_path_factory.mktemp("jobs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        assert main(["job", "render", "conf", "--output", str(folder)]) == 0
    return folder


def test_every_numbered_experiment_has_its_script(rendered: Path) -> None:
    kept, fresh = scripts(ROOT / "jobs"), scripts(rendered)
    wanted = {f"{path.parent.name}/{path.stem}.sh" for path in ROOT.glob("conf/[0-9]*/*.yaml")}
    assert set(fresh) == wanted
    assert sorted(set(kept) - wanted) == [], "no such experiment: remove the script"
    for name in sorted(wanted):
        assert kept.get(name) == fresh[name], f"jobs/{name} is not what its experiment asks for: {RENEW}"


def test_a_shell_can_read_them(rendered: Path) -> None:
    together = "\n".join(path.read_text() for path in sorted(rendered.rglob("*.sh")))
    done = subprocess.run(["bash", "-n"], input=together, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_they_run_from_the_root_of_a_clone() -> None:
    for name, script in scripts(ROOT / "jobs").items():
        experiment = f"conf/{name.removesuffix('.sh')}.yaml"
        assert (ROOT / experiment).is_file()
        last = script.decode().splitlines()[-1]
        assert last.endswith(f" dglcell train {experiment}"), name
        # Nothing of the machine on which they were rendered.
        assert str(ROOT) not in script.decode()


def test_times_and_memory_are_those_of_the_committed_runs() -> None:
    known = files("dglcell").joinpath("cluster/usage.yaml").read_text()
    assert known == usage(read(RESULTS / "runs.csv")), "renew it with: python -m benchmarks.collect"


def asked_for(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Time and memory in the script of an experiment."""
    assert main(["job", "render", *words]) == 0
    return re.findall(r"--(?:mem|time)=(\S+)", capsys.readouterr().out)


def test_a_script_asks_for_what_the_committed_run_took(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    record = yaml.safe_load(files("dglcell").joinpath("cluster/usage.yaml").read_text())["quickstart"]
    memory, time = asked_for(capsys, "quickstart")
    hours, minutes, _ = map(int, time.split(":"))
    assert 0 <= 3600 * hours + 60 * minutes - max(1800, 4 * record["wall_seconds"] + 120) < 600
    assert int(memory.removesuffix("G")) * 2**30 >= 1.5 * record["peak_resident_bytes"]
    longer = asked_for(capsys, "quickstart", f"trainer.epochs={10 * record['epochs']}")
    assert longer[0] == memory
    assert int(longer[1].split(":")[0]) > hours
    assert asked_for(capsys, "quickstart", "slurm.memory=9G", "seed=3", "data.store=x") == ["9G", time]
    other = ("model.hidden=256", "trainer.accelerator=gpu", "trainer.devices=2", "data.source.insilico.triples=none")
    for change in other:
        assert asked_for(capsys, "quickstart", change) == ["32G", "24:00:00"], change


def test_scripts_that_are_current_are_not_written_again(
    rendered: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    script = next((rendered / "104-kuzmin2020-pilot").iterdir())
    script.write_text("#!/bin/bash\nold")
    assert main(["job", "render", "conf/104-kuzmin2020-pilot", "--output", str(rendered), "--overwrite"]) == 0
    said = capsys.readouterr().out
    assert said == f"script written to {script}\n2 scripts in {rendered} up to date\n"
    assert main(["job", "render", "conf/104-kuzmin2020-pilot"]) == 2
    assert main(["job", "render", "conf/bases"]) == 2
    said = capsys.readouterr().err
    assert "error: 'conf/104-kuzmin2020-pilot' has 2 experiments\n  do:       give a folder with `--output`" in said
    assert "error: no numbered experiment is in 'conf/bases'" in said
