"""Reading experiments: files that extend each other, overrides, and every mistake named by its key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from dglcell.checks import HIDDEN
from dglcell.config.experiment import KINDS
from dglcell.config.read import BASES, experiment_file, hide_override, load_config, named_experiments, to_yaml
from dglcell.errors import ConfigError
from dglcell.losses.config import LossConfig, MaskedConfig
from tests.config_files import CONF, CONFIGURATIONS, config_of, refusal, write

FRAGMENTS = [
    p
    for p in CONFIGURATIONS
    if (keys := OmegaConf.load(p)) and "extends" not in keys and not {"model", "networks"} & {*keys.get("cell", {})}
]


ONE_OF_EACH = {path.parent: path for path in reversed(CONFIGURATIONS) if path not in FRAGMENTS}
"""An experiment of each folder; `test_published` reads them all."""


@pytest.mark.parametrize("path", ONE_OF_EACH.values(), ids=lambda p: str(p.relative_to(CONF)))
def test_experiments_are_valid_and_survive_show(path: Path, tmp_path: Path) -> None:
    config = config_of(path)
    assert config.experiment.name
    assert config.cell.model or config.cell.networks
    assert load_config(write(tmp_path, "again.yaml", to_yaml(config))) == config


def test_the_last_file_wins_and_overrides_win_over_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.yaml", "seed: 1\nmodel: {hidden: 16, layers: 1}\ncell: {model: textbook}\n")
    write(tmp_path, "b.yaml", "seed: 2\nmodel: {layers: 2}\n")
    write(tmp_path, "sub/c.yaml", "extends: [../a.yaml, ../b.yaml]\nmodel: {dropout: 0.5}\n")
    path = write(tmp_path, "sub/d.yaml", "extends: c.yaml\ntrainer: {epochs: 3}\n")
    monkeypatch.setenv("WHERE", "/somewhere")
    overrides = ["model.dropout=0.25", "data.phenotypes=[x,y]", "split.subset.size=10", "paths.runs=${oc.env:WHERE}"]
    config = load_config(path, overrides)
    assert config.paths.runs == "/somewhere"
    assert (config.seed, config.model.hidden, config.model.layers, config.model.dropout) == (2, 16, 2, 0.25)
    assert config.trainer.epochs == 3
    assert config.data.phenotypes == ["x", "y"]
    assert config.split.subset is not None
    assert config.split.subset.size == 10


def test_a_name_alone_stands_for_a_section_of_that_kind(tmp_path: Path) -> None:
    write(tmp_path, "base.yaml", "cell: {model: textbook}\nloss: {name: huber}\nmodel: hetero_cell\n")
    config = load_config(write(tmp_path, "child.yaml", "extends: base.yaml\nloss: huber\nmodel: {hidden: 16}\n"))
    assert (config.loss.name, config.model.name, config.model.hidden) == ("huber", "hetero_cell", 16)


def test_another_kind_starts_a_section_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class OtherConfig(LossConfig):
        name: str = "other"
        weight: float = 1.0

    monkeypatch.setitem(KINDS["loss"], "other", OtherConfig)
    write(tmp_path, "base.yaml", "cell: {model: textbook}\nloss: {name: other, weight: 2}\n")
    same = load_config(write(tmp_path, "same.yaml", "extends: base.yaml\nloss: {name: other}\n"))
    assert same.loss == OtherConfig(weight=2.0)
    other = load_config(write(tmp_path, "other.yaml", "extends: base.yaml\nloss: {name: huber}\n"))
    assert other.loss == MaskedConfig("huber")
    assert "unknown key `loss.weight`" in refusal(
        write(tmp_path, "left.yaml", "extends: base.yaml\n"), "loss=mse", "loss.weight=1"
    )


def test_a_network_of_an_extended_file_can_be_left_out() -> None:
    yeast = CONF / "101-collins2007" / "random.yaml"
    names = set(load_config(yeast).cell.networks)
    assert set(load_config(yeast, ["cell.networks.physical=null"]).cell.networks) == names - {"physical"}


def test_the_name_is_the_file_below_conf(tmp_path: Path) -> None:
    text = "cell: {model: textbook}\n"
    assert load_config(write(tmp_path, "conf/yeast/one.yaml", text)).experiment.name == "yeast/one"
    assert load_config(write(tmp_path, "two.yaml", text)).experiment.name == "two"
    config = load_config(write(tmp_path, "three.yaml", text + "experiment: {name: mine}\nseed: 7\n"))
    assert config.run_directory == Path("runs/mine/seed-7")


def test_show_gives_the_same_configuration_again(minimal: Path, tmp_path: Path) -> None:
    overrides = ["optimizer.options={betas: [0.9, 0.99]}", "trainer.accumulate_grad_batches={0: 2, 5: 4}", "loss=huber"]
    overrides += ["data.source.insilico.pairs='300'", "model.norm=none"]
    first = load_config(minimal, overrides)
    again = load_config(write(tmp_path, "again.yaml", to_yaml(first)))
    assert again == first
    assert again.trainer.accumulate_grad_batches == {0: 2, 5: 4}


@pytest.mark.parametrize(
    ("override", "key", "suggestion"),
    [
        ("trainer.epoch=3", "trainer.epoch", "did you mean `trainer.epochs`?"),
        ("cell.networks.foo.pathh=x", "cell.networks.foo.pathh", "did you mean `cell.networks.foo.path`?"),
        ("model.strength_from=[a]", "model.strength_from", "did you mean `model.activity_from`?"),
        ("null_models=false", "null_models", "did you mean baselines?"),
        ("split.subset.siz=3", "split.subset.siz", "did you mean `split.subset.size`?"),
        ("paths.zzz=1", "paths.zzz", "expected: among raw, data, runs"),
    ],
)
def test_unknown_keys_are_refused_with_a_suggestion(minimal: Path, override: str, key: str, suggestion: str) -> None:
    message = refusal(minimal, override)
    assert f"minimal.yaml: unknown key `{key}`\n" in message
    assert suggestion in message


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("trainer.epochs=many", "`trainer.epochs` has a wrong value\n  got:      many\n  expected: a valid integer"),
        ("trainer.epochs=", "`trainer.epochs` has a wrong value\n  got:      null\n  expected: a valid integer"),
        ("trainer=5", "`trainer` has a wrong value\n  got:      5\n  expected: a mapping with epochs, "),
        (
            "data.source.csv.phenotypes.a=[b]",
            "`data.source.csv.phenotypes.a` has a wrong value\n  got:      ['b']\n  expected: a valid string",
        ),
        ("seed=${nowhere}", "`seed` has a wrong value\n  got:      Interpolation key 'nowhere' not found"),
        (
            "experiment.name=1e5",
            "`experiment.name` was read as a number\n  got:      100000.0\n  expected: a text\n  do: ",
        ),
        ("experiment.tags=[1.10]", "`experiment.tags` was read as a number\n  got:      1.1\n"),
        ("data.phenotypes=[a", "override `data.phenotypes`: its value is not YAML\n  got:      data.phenotypes=[a"),
        ("seed", "an override is not of the form key=value\n  got:      seed"),
        (
            "data.source.csv.genes=KO",
            "`data.source.csv.genes` has a wrong value\n  got:      KO\n  expected: a list, e.g. [KO]",
        ),
    ],
)
def test_wrong_types_are_refused(minimal: Path, override: str, expected: str) -> None:
    assert expected in refusal(minimal, override)


def test_numbers_that_are_written_oddly_are_texts_where_a_text_is_meant(minimal: Path) -> None:
    keys = [
        "experiment.name=2024_01_05",
        "slurm.account=0123",
        "experiment.tags=[007]",
        "trainer.epochs=1_0",
        "seed=010",
    ]
    config = load_config(minimal, [*keys, "data.source.csv.na_values=[-9.5]", "optimizer.options={eps: 1e-8}"])
    assert (config.experiment.name, config.slurm.account, config.experiment.tags) == ("2024_01_05", "0123", ["007"])
    assert (config.trainer.epochs, config.seed, config.optimizer.options) == (10, 10, {"eps": 1e-8})
    assert config.data.source.csv.na_values == ["-9.5"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.yaml").startswith(f"configuration '{tmp_path / 'no.yaml'}' not found\n")
    assert "' not found" in refusal(tmp_path)
    path = write(tmp_path, "a.yaml", "extends: basis.yaml\n")
    assert refusal(path).startswith(f"configuration '{tmp_path / 'basis.yaml'}' not found (extended by '{path}')")


def test_files_of_the_package_are_extended_if_none_is_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("base.yaml", "conf/base.yaml"):
        path = write(tmp_path, "mine.yaml", f"extends: {name}\ncell: {{model: textbook}}\n")
        assert load_config(path).optimizer.weight_decay == 1e-6
    write(tmp_path, "base.yaml", "optimizer: {weight_decay: 0.5}\n")
    path = write(tmp_path, "mine.yaml", "extends: base.yaml\ncell: {model: textbook}\n")
    assert load_config(path).optimizer.weight_decay == 0.5
    monkeypatch.setenv("LAB", str(tmp_path))
    path = write(tmp_path, "sub/mine.yaml", "extends: ${oc.env:LAB}/base.yaml\ncell: {model: textbook}\n")
    assert load_config(path).optimizer.weight_decay == 0.5
    path = write(tmp_path, "mine.yaml", "extends: ${seed.name}\n")
    assert "`extends` cannot be resolved" in refusal(path)


def test_experiments_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    named = named_experiments()
    assert {"quickstart", "101-collins2007/random"} <= named.keys()
    assert "base" not in named
    assert named["quickstart"].startswith("In-silico deletion screen")
    for name in ("quickstart", "quickstart.yaml", "conf/quickstart.yaml"):
        assert load_config(experiment_file(name)).experiment.name == "quickstart"
    (tmp_path / "conf").mkdir()
    own = write(tmp_path / "conf", "quickstart.yaml", "seed: 5\n")
    assert experiment_file("quickstart").resolve() == own
    here = write(tmp_path, "mine.yaml", "seed: 6\n")
    assert experiment_file("mine").resolve() == here
    with pytest.raises(ConfigError, match=r"'main' not found\n.*\n.*did you mean mine"):
        experiment_file("main")


def test_a_cluster_s_settings_hold_where_an_experiment_says_nothing(
    minimal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = write(tmp_path, "site.yaml", "slurm: {account: lab, partition: long, time: '1:00:00'}\n")
    monkeypatch.setenv("DGLCELL_SITE", str(site))
    slurm = load_config(minimal, ["slurm.partition=short"]).slurm
    assert (slurm.account, slurm.partition, slurm.time) == ("lab", "short", "1:00:00")
    write(tmp_path, "site.yaml", "seed: 3\nslurm: {account: lab}\n")
    assert "which DGLCELL_SITE names, has other sections than `slurm`\n  got:      seed, slurm" in refusal(minimal)
    monkeypatch.setenv("DGLCELL_SITE", str(tmp_path / "no.yaml"))
    assert "no.yaml' not found" in refusal(minimal)


def test_circles_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "extends: b.yaml\n")
    for name, other, circle in (("b", "a", r"b\.yaml → .*a\.yaml → "), ("c", "c", r"c\.yaml → .*c\.yaml")):
        path = write(tmp_path, f"{name}.yaml", f"extends: {other}.yaml\n")
        assert re.match(rf"configurations extend each other in a circle\n.*{circle}", refusal(path))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: [\n", "brackets and quotation marks are closed"),
        (b"seed: 1\nseed: 2\n", "found duplicate key seed"),
        (b"\xff\xfe", "expected: a text file in UTF-8"),
        (b"- 3\n", "holds no configuration\n  got:      ListConfig\n  expected: a mapping of keys"),
        (b"extends: 5\n", "`extends` names no files\n  got:      5"),
        (b"", "`cell` is empty"),
    ],
)
def test_files_that_are_no_configurations(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    assert expected in refusal(path)


def test_a_configuration_is_written_without_secrets(minimal: Path) -> None:
    config = load_config(minimal, ["slurm.environment={TOKEN: s3cret, RAW: /raw}", "slurm.partition=gpu"])
    assert config.slurm.environment == {"TOKEN": "s3cret", "RAW": "/raw"}
    written = OmegaConf.create(to_yaml(config))
    assert written.slurm.environment == {"TOKEN": HIDDEN, "RAW": HIDDEN}
    assert written.slurm.partition == "gpu"
    assert config.slurm.environment["TOKEN"] == "s3cret"


@pytest.mark.parametrize(
    "override",
    [
        "slurm.environment.TOKEN=s3cret",
        "slurm.environment.TOKEN=1_s3cret",
        "slurm.environment={TOKEN: s3cret}",
        "environment={TOKEN: s3cret}",
        "slurm={environment: {TOKEN: s3cret}, time: '12:00:00', account: null, requeue: false}",
    ],
)
def test_an_override_without_its_secret_says_the_same(minimal: Path, override: str) -> None:
    hidden = hide_override(override)
    assert "s3cret" not in hidden
    assert to_yaml(load_config(minimal, [hidden])) == to_yaml(load_config(minimal, [override]))
    for word in ("train", "slurm.time=1:00", "slurm={mail: a@b.c}", "trainer.epochs=3", "slurm"):
        assert hide_override(word) == word


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("slurm.environment.TOKEN={s3cret", "override `slurm.environment.TOKEN`: its value is not YAML"),
        ("slurm.environment=s3cret", "`slurm.environment` has a wrong value"),
        ("environment=s3cret", "`slurm.environment` has a wrong value"),
        ("slurm.environment.TOKEN=[s3cret]", "`slurm.environment.TOKEN` has a wrong value"),
        ('slurm.environment.TOKEN="s3cret\\n"', "`slurm.environment.TOKEN` has a control character"),
        ("slurm[environment].TOKEN=s3cret", "override `slurm[environment].TOKEN` names a place in a list"),
    ],
)
def test_no_message_quotes_a_secret(minimal: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(minimal, [override])
    assert message in str(error.value)
    assert HIDDEN in str(error.value)
    assert "s3cret" not in str(error.value)
    assert "s3cret" not in hide_override(override)


def test_a_table_in_place_of_an_experiment_is_told_what_to_do(tmp_path: Path) -> None:
    table = tmp_path / "strains.csv"
    table.write_text("gene_1,growth\n")
    with pytest.raises(ConfigError, match=f"is a table(.|\n)*dglcell init NAME --table {table}"):
        experiment_file(table)


@pytest.mark.parametrize(("name", "base"), BASES.items())
def test_the_base_of_a_model_is_an_experiment_of_that_model(tmp_path: Path, name: str, base: str) -> None:
    path = write(tmp_path, "mine.yaml", f"extends: [base.yaml, {base}]\ncell: {{model: textbook}}\n")
    config = load_config(path)
    assert (config.model.name, BASES[config.model.name]) == (name, base)
    other = load_config(write(tmp_path, "other.yaml", "extends: base.yaml\ncell: {model: textbook}\n"))
    assert load_config(path, ["model.name=hetero_cell"]).model.name == other.model.name == "hetero_cell"
    for model in BASES:
        ways = (f"model={model}", f"model={{name: {model}}}", f'model="{model}"', f'model.name="{model}"')
        assert all(load_config(path, [way]) == load_config(path, [f"model.name={model}"]) for way in ways)
