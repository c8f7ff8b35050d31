"""Read suites: which experiments are trained with which models and seeds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from dglcell.config.experiment import Config
from dglcell.config.read import PACKAGED, experiment_file, load_config, read_yaml
from dglcell.errors import ConfigError, did_you_mean, listing

SHIPPED = "shipped"
"""This model of a suite is the experiment as its file has it."""

KEYS = ("extends", "description", "experiments", "models", "seeds", "split_seeds")

NAME = re.compile(r"[A-Za-z][\w.-]*")
OWN = ("experiment", "seed", "paths")
"""The suite itself sets these keys of every run."""


@dataclass(frozen=True)
class Entry:
    """An entry is one experiment with one model: a row of the table for each of its phenotypes.

    Attributes:
        overrides: keys of the model and of the command line, and the name of the experiment.
        config: the experiment with these keys, and its own seed.
        split_seeds: whether the seed of a run is also that of its split.
    """

    model: str
    file: Path
    overrides: tuple[str, ...]
    config: Config
    split_seeds: bool

    @property
    def experiment(self) -> str:
        """Return the name of the experiment without the model."""
        name = self.config.experiment.name
        return name if self.model == SHIPPED else name.removesuffix(f"/{self.model}")

    def member(self, seed: int) -> Config:
        """Return the configuration of the run with a seed."""
        split = replace(self.config.split, seed=seed) if self.split_seeds else self.config.split
        return replace(self.config, seed=seed, split=split)


@dataclass(frozen=True)
class Suite:
    """A suite has experiments, each of which is trained with every model and seed.

    Attributes:
        models: name → keys that are set over those of an experiment, as ``key=value``.
        split_seeds: whether a seed also divides the strains anew.
    """

    name: str
    description: str
    experiments: tuple[str, ...]
    models: Mapping[str, tuple[str, ...]]
    seeds: tuple[int, ...]
    split_seeds: bool = True

    def entries(self, overrides: Sequence[str] = ()) -> list[Entry]:
        """Return all experiments with all models, checked.

        Args:
            overrides: keys of every run, as ``key=value``.

        Raises:
            ConfigError: an experiment does not exist, or does not take the keys of a model.
        """
        return [entry for name in self.experiments for entry in self._of(experiment_file(name), overrides)]

    def _of(self, file: Path, overrides: Sequence[str]) -> Iterator[Entry]:
        plain = load_config(file)
        for model, keys in self.models.items():
            given = (*keys, *overrides)
            if model != SHIPPED:
                given = (*given, f"experiment.name={plain.experiment.name}/{model}", "experiment.expected=null")
            yield Entry(model, file, given, load_config(file, given) if given else plain, self.split_seeds)


def read_suite(name: str | Path) -> Suite:
    """Read a suite: the one that it extends first, then its own keys.

    Args:
        name: path of a YAML file, or the name of a suite of this package.

    Raises:
        ConfigError: the file is missing or not YAML, or a key is unknown or has a value of another kind.
    """
    file = suite_file(name)
    content = _layers(file, ())
    where = f"suite '{file}'"
    models = {name: keys for name, keys in content.get("models", {SHIPPED: {}}).items() if keys is not None}
    if not models:
        raise _wrong(where, "models", "none", f"a model, such as {SHIPPED}: {{}}")
    return Suite(
        file.stem,
        _of_kind(content, "description", str, "a sentence", where, ""),
        tuple(_list_of(content, "experiments", str, "a list of experiments", where)),
        {str(model): tuple(_keys(model, keys, where)) for model, keys in models.items()},
        tuple(_list_of(content, "seeds", int, "a list of seeds, e.g. [0, 1, 2]", where)),
        _of_kind(content, "split_seeds", bool, "true or false", where, True),
    )


def suite_file(name: str | Path, beside: Path = Path()) -> Path:
    """Return the file of a suite.

    Args:
        name: its path, or its name among the suites of this package.
        beside: folder that a relative path starts from.

    Raises:
        ConfigError: there is no such file.
    """
    if (path := beside / name).is_file():
        return path
    packaged = {path.stem: path for path in sorted((PACKAGED / "suites").glob("*.yaml"))}
    key = Path(name).stem
    if key in packaged and Path(name).parent.as_posix() in (".", "suites", "conf/suites"):
        return packaged[key]
    raise ConfigError(
        f"suite '{name}' not found",
        expected=f"a YAML file, or one of {', '.join(packaged)}",
        do=did_you_mean(key, packaged, "check the path"),
    )


def _layers(file: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """Return the keys of a suite over those of the suite that it extends."""
    if file.resolve() in seen:
        raise ConfigError("suites extend each other in a circle", got=" → ".join(map(str, (*seen, file))))
    own: Any = OmegaConf.to_container(read_yaml(file))
    unknown = [key for key in map(str, own) if key not in KEYS]
    if unknown:
        raise ConfigError(
            f"suite '{file}' has a key that suites do not have",
            got=unknown[0],
            expected=f"among {', '.join(KEYS)}",
            do=did_you_mean(unknown[0], KEYS, "keys of experiments stand in `models`, below the name of a model"),
        )
    if not isinstance(own.get("models", {}), dict):
        raise _wrong(f"suite '{file}'", "models", own["models"], "a mapping: name of a model → keys, or {} for none")
    extends = own.pop("extends", None)
    if extends is None:
        return dict(own)
    if not isinstance(extends, str):
        raise _wrong(f"suite '{file}'", "extends", extends, "the path or name of one suite")
    before = _layers(suite_file(extends, file.parent), (*seen, file.resolve()))
    return before | own | {"models": before.get("models", {SHIPPED: {}}) | own.get("models", {})}


def _keys(model: str, keys: Any, where: str) -> Iterator[str]:
    """Yield the keys of a model as ``key=value``."""
    if not isinstance(model, str) or not NAME.fullmatch(model):
        raise _wrong(where, "models", model, "a name that begins with a letter and has letters, digits, `.`, `_`, `-`")
    if not isinstance(keys, dict) or (model == SHIPPED and keys):
        what = "{}: these are the experiments as they are" if model == SHIPPED else "keys, such as {model: {name: …}}"
        raise _wrong(where, f"models.{model}", keys, what)
    taken = [key for key in map(str, keys) if key.partition(".")[0] in OWN]
    if taken:
        raise ConfigError(
            f"{where}: the model `{model}` sets a key that the suite itself sets",
            got=listing(taken),
            expected=f"other keys than {', '.join(OWN)}",
            do="give `paths.…=…` on the command line, and seeds in `seeds`",
        )
    yield from _flat(keys)


def _flat(keys: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    for key, value in keys.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            text = yaml.safe_dump(value, default_flow_style=True, width=2**30, allow_unicode=True)
            yield f"{prefix}{key}={text.removesuffix('...' + chr(10)).strip()}"


def _list_of(content: Mapping[str, Any], key: str, kind: type, what: str, where: str) -> list[Any]:
    found: Any = content.get(key)
    good = isinstance(found, list) and found and all(type(one) is kind for one in found)
    if not good or len(set(found)) < len(found):
        raise _wrong(where, key, found, f"{what}, each once")
    return list(found)


def _of_kind(content: Mapping[str, Any], key: str, kind: type, what: str, where: str, default: Any) -> Any:
    found = content.get(key, default)
    if type(found) is not kind:
        raise _wrong(where, key, found, what)
    return found


def _wrong(where: str, key: str, got: Any, expected: str) -> ConfigError:
    return ConfigError(f"{where}: `{key}` has a wrong value", got=got, expected=expected)
