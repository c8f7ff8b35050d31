"""What suites say, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dglcell.config.read import PACKAGED
from dglcell.errors import ConfigError
from dglcell.suites.suite import read_suite
from tests.config_files import write

SUITE = "experiments: [quickstart]\nmodels: {shipped: {}}\nseeds: [0, 1]\n"


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as error:
        read_suite(path)
    return str(error.value)


@pytest.mark.parametrize("path", sorted((PACKAGED / "suites").glob("*.yaml")), ids=lambda path: path.stem)
def test_suites_of_the_package(path: Path) -> None:
    suite = read_suite(path.stem)
    assert suite.description
    assert suite.models == {"shipped": ()}
    for name in suite.experiments:
        assert (PACKAGED / f"{name}.yaml").is_file()


def test_a_file_adds_a_model_to_a_suite(tmp_path: Path) -> None:
    write(tmp_path, "first.yaml", SUITE)
    mine = write(
        tmp_path,
        "mine.yaml",
        "extends: first.yaml\nmodels:\n  mine: {model: {hidden: 16, pool: [gene, reaction]}, trainer.epochs: 2}\n",
    )
    suite = read_suite(mine)
    assert suite.name == "mine"
    assert suite.models == {
        "shipped": (),
        "mine": ("model.hidden=16", "model.pool=[gene, reaction]", "trainer.epochs=2"),
    }
    shipped, own = suite.entries([f"paths.runs={tmp_path}"])
    assert own.config.model.hidden == 16 != shipped.config.model.hidden
    assert (shipped.experiment, own.experiment) == ("quickstart", "quickstart")
    assert own.config.trainer.epochs == 2
    assert own.config.experiment.expected is None
    assert own.member(1).run_directory == tmp_path / "quickstart" / "mine" / "seed-1"
    assert shipped.member(1).split.seed == own.member(1).split.seed == 1


def test_a_suite_leaves_out_a_model_and_keeps_the_split(tmp_path: Path) -> None:
    write(tmp_path, "first.yaml", SUITE)
    text = "extends: first.yaml\nsplit_seeds: false\nmodels: {shipped: null, short: {trainer: {epochs: 1}}}\n"
    suite = read_suite(write(tmp_path, "mine.yaml", text))
    assert suite.models == {"short": ("trainer.epochs=1",)}
    (entry,) = suite.entries()
    assert entry.member(1).split.seed == entry.config.split.seed


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("experimets: [quickstart]", ["experimets", "did you mean experiments"]),
        ("model: {name: x}", ["has a key that suites do not have", "models"]),
        ("experiments: []\nseeds: [0]", ["`experiments` has a wrong value", "a list of experiments, each once"]),
        ("experiments: [quickstart]\nseeds: [0, 0]", ["`seeds` has a wrong value", "each once"]),
        (SUITE + "split_seeds: 3", ["`split_seeds`", "true or false"]),
        (SUITE.replace("shipped: {}", "shipped: {seed: 1}"), ["`models.shipped`", "the experiments as they are"]),
        (SUITE.replace("shipped: {}", "a/b: {}"), ["`models`", "begins with a letter"]),
        (SUITE.replace("shipped: {}", "a: {seed: 1}"), ["the model `a` sets a key", "seed"]),
        (SUITE.replace("shipped: {}", "a: 3"), ["`models.a`", "keys, such as"]),
        ("extends: first.yaml\nmodels: {shipped: null}", ["`models` has a wrong value", "a model"]),
        ("models: [a]", ["`models` has a wrong value", "a mapping"]),
        ("extends: [a, b]", ["`extends` has a wrong value"]),
        ("extends: nowhere", ["suite 'nowhere' not found", "lab"]),
        ("extends: mine.yaml", ["in a circle"]),
    ],
)
def test_refused(tmp_path: Path, text: str, parts: list[str]) -> None:
    write(tmp_path, "first.yaml", SUITE)
    message = refused(write(tmp_path, "mine.yaml", text))
    assert all(part in message for part in parts), message


def test_an_experiment_or_key_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    suite = read_suite(write(tmp_path, "mine.yaml", SUITE.replace("quickstart", "quickstrat")))
    with pytest.raises(ConfigError, match="quickstart"):
        suite.entries()
    suite = read_suite(write(tmp_path, "mine.yaml", SUITE.replace("shipped: {}", "a: {model: {hiden: 3}}")))
    with pytest.raises(ConfigError, match="hidden"):
        suite.entries()
