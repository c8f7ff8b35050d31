"""Classes of one's own: found by name, checked before anything runs, and trained like any other."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dglcell.cli import main
from dglcell.config.read import load_config
from dglcell.data.sources import SourceConfig, load_source
from dglcell.errors import ConfigError
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.resident import ResidentCell
from dglcell.losses.config import LOSSES
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import CONVS, MODELS
from dglcell.models.model import make_model
from dglcell.nn.convolutions import Convolution
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.plugins import FOLDER, class_of, looking_in
from dglcell.report.page import page_content
from dglcell.report.run_files import read_run
from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import load_trained

PAGE = (Path(__file__).parents[1] / "docs/extend/own.md").read_text()
OF_PAGE = "\n".join(re.search(f"```python\n# {name}.py\n(.*?)```", PAGE, re.S)[1] for name in ("my_model", "my_conv"))  # type: ignore[index]
PARTS = (
    OF_PAGE
    + '''\
from pathlib import Path

from dglcell.data.sources import Source, SourceOptions
from dglcell.data.strains import Strains
from dglcell.models.cell_model import HeteroCell

LIMIT = 3


class Lines(Source):
    """Genotypes of a text file, and how long their names are."""

    @dataclass
    class Config(SourceOptions):
        path: str = "lines.txt"

    def load(self, raw):
        strains = [line.split() for line in open(self.config.path)]
        return Strains.from_names(strains, phenotypes={"length": [len("".join(s)) for s in strains]})

    def files(self, raw):
        return [Path(self.config.path)]


class Wider(HeteroCell):
    """The package's own model under another name."""


class NoUpdate(Convolution):
    def receive(self, perturbed, source, destination): ...


class NoForward(StrainModel):
    pass


class NotDerived(StrainModel):
    Config = dict

    def forward(self, genotypes): ...


class NoDefault(StrainModel):
    @dataclass
    class Config(ModelConfig):
        width: "torch.Tensor" = None

    def forward(self, genotypes): ...
'''
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "my_parts.py").write_text(PARTS)
    (tmp_path / "broken_parts.py").write_text("import no_such_package\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("my_parts", "broken_parts"):
        sys.modules.pop(name, None)


def test_classes_have_the_configurations_that_are_read_without_them() -> None:
    assert all(class_of("model", name, MODELS).Config is config for name, config in MODELS.items())
    assert all(issubclass(config, class_of("loss", name, LOSSES).Config) for name, config in LOSSES.items())
    assert all(issubclass(class_of("conv", name, CONVS), Convolution) for name in CONVS)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model=my_parts", "`model.name` is unknown\n.*my_parts\n.*dango, or MODULE:CLASS of your own"),
        ("model=my_parts:1x", "`model.name` names no class\n.*my_parts:1x\n"),
        ("model=your_parts:Additive", "`model.name: your_parts:Additive` cannot be imported\n.*No module named"),
        ("model=broken_parts:Additive", "cannot be imported\n.*No module named 'no_such_package'"),
        ("model=my_parts:Addtive", "module 'my_parts' has no 'Addtive'\n.*\n.*: one of its classes: Additive, Abs"),
        ("model=my_parts:LIMIT", "cannot be used\n.*3\n.*derived from dglcell.models.model.Strain"),
        ("model=my_parts:NoForward", "`model.name: my_parts:NoForward` lacks the method `forward`"),
        ("model=my_parts:NotDerived", "its `Config` cannot be used\n.*dict.*\n.*dglcell.models.config.ModelConfig"),
        ("model=my_parts:NoDefault", "its `Config` cannot be read from YAML"),
        ("model={name: 'my_parts:Additive', scales: 2}", "unknown key `model.scales`\n.*\n.*`model.scale`"),
        ("model.conv=my_parts:Additive", "cannot be used\n.*Additive.*\n.*dglcell.nn.convolutions.Convolution"),
        ("model.conv=my_parts:NoUpdate", "`model.conv: my_parts:NoUpdate` lacks the method `update`"),
        ("model={conv: 'my_parts:Gated', conv_options: {gates: 2}}", "unknown key `model.conv_options.gates`"),
        ("model.conv_options={factor: 2}", "`model.conv_options` is for a MODULE:CLASS of your own\n.*conv: gin"),
        (
            "model.conv=sagee",
            "`model.conv` is unknown\n.*\n.*gatv2, dgl.nn.NAME, or MODULE:CLASS of your own\n.*did you mean sage",
        ),
        ("data.source={name: 'my_parts:Lines', options: {file: x}}", "unknown key `data.source.options.file`"),
        ("data.source.options={path: x}", "`data.source.options` is for a MODULE:CLASS of your own"),
    ],
)
def test_what_cannot_be_used_is_refused(folder: Path, override: str, message: str) -> None:
    Path("experiment.yaml").write_text("cell: {model: textbook}\n")
    with pytest.raises(ConfigError, match=message):
        load_config("experiment.yaml", [override])


def test_models_of_the_package_are_derived_from_with_their_keys(folder: Path) -> None:
    Path("experiment.yaml").write_text("cell: {model: textbook}\nmodel: {name: 'my_parts:Wider', hidden: 8}\n")
    config = load_config("experiment.yaml")
    made = make_model(config.model, ResidentCell.of(build_cell(config.cell)), outputs=2)
    assert isinstance(made, HeteroCell)
    assert type(made).__name__ == "Wider"
    assert made(GenotypeBatch.from_lists([[0, 1], [2]])).phenotypes.shape == (2, 2)


@pytest.mark.parametrize("model", ["hetero_cell", "set_operator"])
def test_convolutions_pass_messages_in_every_model(folder: Path, model: str) -> None:
    of_model = f"{{name: {model}, hidden: 8, conv: 'my_parts:Gated', conv_options: {{gate: 2}}}}"
    Path("experiment.yaml").write_text(f"cell: {{model: textbook, derived: [isoenzyme]}}\nmodel: {of_model}\n")
    config = load_config("experiment.yaml")
    made = make_model(config.model, ResidentCell.of(build_cell(config.cell)), outputs=1)
    assert {module.start for module in made.modules() if type(module).__name__ == "Gated"} == {2.0}
    assert made(GenotypeBatch.from_lists([[0, 1], [2]])).phenotypes.isfinite().all()


def test_a_source_says_what_it_is_of(folder: Path) -> None:
    (folder / "lines.txt").write_text("b0008 b2464\nb0727\n")
    with looking_in(FOLDER):
        table = load_source(SourceConfig("my_parts:Lines"))
    assert table.phenotypes["length"].tolist() == [10, 5]
    assert table.provenance.source == "my_parts:Lines"
    assert table.provenance.parameters == {"path": "lines.txt"}
    assert set(table.provenance.files) == {"my_parts.py", "lines.txt"}


def test_own_parts_are_trained_loaded_and_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    genes = build_cell(CellConfig(model="textbook")).genes.names[:12]
    pairs = [f"{a} {b}" for i, a in enumerate(genes) for b in genes[i + 1 :]]
    (folder / "lines.txt").write_text("\n".join([*pairs, *genes]) + "\n")
    (folder / "mine.yaml").write_text(
        "cell: {model: textbook}\n"
        "data: {source: {name: 'my_parts:Lines', options: {path: lines.txt}}, batch_size: 16, normalise: none}\n"
        "model: {name: 'my_parts:Additive', scale: 0.5}\n"
        "loss: {name: 'my_parts:Absolute', weight: 2.0}\n"
        "trainer: {epochs: 2, threads: 1, accelerator: cpu, checkpoint: last}\n"
        "plot: false\n"
    )
    assert main(["train", "mine.yaml"]) == 0
    run = RunDirectory(Path("runs/mine/seed-0"))
    assert type(load_trained(run).model).__name__ == "Additive"
    rows = json.loads(run.results.read_text())["rows"]
    assert {row["model"] for row in rows} >= {"my_parts:Additive", "additive ridge"}
    assert main(["evaluate", str(run.path)]) == 0
    assert "my_parts:Additive" in capsys.readouterr().out
    (folder / "in.csv").write_text("genes\nb0008;b0114\n")
    assert main(["predict", str(run.path), "in.csv", "-o", "out.csv"]) == 0
    assert (folder / "out.csv").read_text().startswith("genes,predicted_by,predicted_length\nb0008;b0114,")
    files = read_run(run.path)
    assert page_content(files, b"")["title"] == "mine, seed 0"
    # Another process looks at the run, and nothing of it is imported; nor is it when the run predicts.
    sys.modules.pop("my_parts")
    (folder / "my_parts.py").rename(folder / "kept.py")
    (folder / "my_parts.py").write_text("raise AssertionError\n")
    for words in ("config show runs/mine/seed-0/config.yaml", "report runs/mine/seed-0", "runs"):
        assert main(words.split()) == 0
    shown = capsys.readouterr().out
    assert all(f"  {line}\n" in shown for line in ("name: my_parts:Additive", "scale: 0.5", "weight: 2.0"))
    assert main(["predict", str(run.path), "in.csv"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: `model.name: my_parts:Additive` cannot be imported\n")
    assert "if you trust it, set PYTHONPATH to my_parts's folder" in message
    (folder / "kept.py").replace(folder / "my_parts.py")
    assert "" not in sys.path
    assert str(folder) not in sys.path
