"""Choosing a source by its configuration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from dglcell.data.sources import SourceConfig, list_sources, load_source
from dglcell.errors import ConfigError


def from_overrides(*overrides: str) -> SourceConfig:
    merged = OmegaConf.merge(OmegaConf.structured(SourceConfig), OmegaConf.from_dotlist(list(overrides)))
    config = OmegaConf.to_object(merged)
    assert isinstance(config, SourceConfig)
    return config


def test_in_silico_is_the_default() -> None:
    table = load_source(from_overrides("insilico.pairs=50", "insilico.triples=none"))
    assert np.bincount(table.num_deletions).tolist() == [0, 137, 50]


def test_csv_by_overrides(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("g,h,f\nA,B,0.5\n")
    config = from_overrides("name=csv", "csv.path=t.csv", "csv.genes=[g,h]", "csv.phenotypes.fitness=f")
    assert load_source(config, str(tmp_path)).phenotypes["fitness"].tolist() == [0.5]


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("collins2006", "collins2007"), ("in-silico", "insilico"), ("kuzmin2020pilot", "kuzmin2020_pilot")],
)
def test_an_unknown_source_suggests_close_ones(name: str, suggestion: str) -> None:
    with pytest.raises(ConfigError, match=rf"no data source is called '{name}'(.|\n)*did you mean .*{suggestion}"):
        load_source(SourceConfig(name=name))


def test_a_hopeless_name_points_to_the_list() -> None:
    with pytest.raises(ConfigError, match="dglcell data list"):
        SourceConfig(name="####").validate()


def test_only_the_chosen_source_is_validated() -> None:
    config = SourceConfig(name="collins2007")
    config.insilico.pairs = "nonsense"
    config.validate()
    config.name = "insilico"
    with pytest.raises(ConfigError, match=r"`data.source.insilico\.pairs`"):
        config.validate()


def test_the_list_says_what_is_available(tmp_path: Path) -> None:
    (tmp_path / "interactions").mkdir()
    (tmp_path / "interactions" / "collins2007_emap.csv.gz").touch()
    available = {info.name: info.available for info in list_sources(str(tmp_path))}
    assert available["insilico"]
    assert available["collins2007"]
    assert not available["tong2004_tested_pairs"]
    assert all(info.description and info.size and info.licence for info in list_sources(str(tmp_path)))


def test_choosing_a_source_imports_neither_cobra_nor_pandas() -> None:
    code = (
        "import sys; from dglcell.data.sources import SourceConfig, list_sources; SourceConfig().validate(); "
        "list_sources(); print([m for m in ('cobra', 'pandas', 'swiglpk', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
