"""Experiments: typed configuration, read from YAML files that extend each other, with dotted overrides."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dglcell.data.sources import SourceConfig
from dglcell.data.split import SplitConfig
from dglcell.errors import ConfigError
from dglcell.graph.cell import CellConfig
from dglcell.graph.vocabulary import UNKNOWN_POLICIES
from dglcell.losses.masked import MaskedLoss
from dglcell.models.config import HeteroCellConfig
from dglcell.training.optimizers import OptimizerConfig, SchedulerConfig

WANDB_MODES = ("disabled", "offline", "online")
CHECKPOINTS = ("best_loss", "best_pearson", "last")


@dataclass
class ExperimentConfig:
    """What the run is called."""

    name: str = ""  # names the run directory; the file's folder and stem where empty
    description: str = ""
    tags: list[str] = field(default_factory=list)


@dataclass
class DataConfig:
    """Strains and their batches."""

    source: SourceConfig = field(default_factory=SourceConfig)
    store: str | None = None  # path of the store; inside `paths.data`, named by source and options, where null
    phenotypes: list[str] | None = None  # which are predicted; all where null
    unknown_genes: str = "refuse"  # strains with genes that the cell graph lacks: refuse | drop
    batch_size: int = 128  # strains per step and device
    eval_batch_size: int | None = None  # the same in evaluation; batch_size where null

    def validate(self) -> None:
        """Raises ConfigError, naming the key."""
        if self.unknown_genes not in UNKNOWN_POLICIES:
            raise ConfigError(
                "`data.unknown_genes` is unknown", got=self.unknown_genes, expected=" or ".join(UNKNOWN_POLICIES)
            )
        for key in ("batch_size", "eval_batch_size"):
            size = getattr(self, key)
            if size is not None and size < 1:
                raise ConfigError(f"`data.{key}` is too small", got=size, expected="1 or more")
        self.source.validate()


@dataclass
class TrainerConfig:
    """How training runs."""

    epochs: int = 30
    accelerator: str = "auto"  # auto | cpu | gpu
    devices: int = 1
    num_nodes: int = 1
    strategy: str = "auto"  # auto | ddp, as Lightning names them
    precision: str = "32-true"  # 32-true | bf16-mixed | 64-true
    accumulate: dict[int, int] = field(default_factory=dict)  # from epoch → batches per optimiser step
    clip: float | None = 10.0  # largest gradient norm; null for none
    deterministic: bool = True  # refuse non-deterministic kernels
    threads: int | None = None  # CPU threads of torch; its default where null
    patience: int | None = None  # stop after so many epochs without a better validation loss; null for never
    evaluate: str = "best_pearson"  # best_loss | best_pearson | last: the checkpoint that is reported
    progress: bool = True  # a progress bar, on a terminal

    def validate(self) -> None:
        """Raises ConfigError, naming the key."""
        for key in ("epochs", "devices", "num_nodes", "threads", "patience"):
            number = getattr(self, key)
            if number is not None and number < 1:
                raise ConfigError(f"`trainer.{key}` is too small", got=number, expected="1 or more")
        if self.evaluate not in CHECKPOINTS:
            raise ConfigError("`trainer.evaluate` is unknown", got=self.evaluate, expected=", ".join(CHECKPOINTS))
        if self.clip is not None and self.clip <= 0:
            raise ConfigError("`trainer.clip` must be positive", got=self.clip, do="use null for no clipping")
        if any(epoch < 0 or batches < 1 for epoch, batches in self.accumulate.items()):
            raise ConfigError(
                "`trainer.accumulate` is no schedule",
                got=dict(self.accumulate),
                expected="{epoch: batches per step}, e.g. {0: 3}",
            )


@dataclass
class TrackingConfig:
    """Weights & Biases; the JSONL record is written in any case."""

    wandb: str = "disabled"  # disabled | offline | online
    project: str = "dglcell"
    entity: str | None = None
    group: str | None = None  # the experiment's name where null

    def validate(self) -> None:
        """Raises ConfigError, naming the key."""
        if self.wandb not in WANDB_MODES:
            raise ConfigError("`tracking.wandb` is unknown", got=self.wandb, expected=", ".join(WANDB_MODES))


@dataclass
class PathsConfig:
    """Where files are."""

    raw: str | None = None  # raw files; the environment variable DGLCELL_RAW where null
    data: str = "data"  # stores
    runs: str = "runs"  # run directories


@dataclass
class Config:
    """One experiment."""

    experiment: ExperimentConfig = field(default_factory=ExperimentConfig)
    seed: int = 0
    cell: CellConfig = field(default_factory=CellConfig)
    data: DataConfig = field(default_factory=DataConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    model: HeteroCellConfig = field(default_factory=HeteroCellConfig)
    loss: str = "mse"  # mse | huber | log_cosh, in normalised units
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    paths: PathsConfig = field(default_factory=PathsConfig)
    resume: str = "auto"  # auto: continue the run directory's last checkpoint | never | path of a checkpoint
    null_models: bool = True  # fit them on the same split
    plot: bool = True  # draw the report figure

    def validate(self) -> None:
        """Check every section, then the sections against each other.

        Raises:
            ConfigError: naming the key.
            GraphError: a network's name cannot name a relation.
        """
        for section in (
            self.cell,
            self.data,
            self.split,
            self.model,
            self.optimizer,
            self.scheduler,
            self.trainer,
            self.tracking,
        ):
            section.validate()
        MaskedLoss(self.loss)
        self._validate_names()
        if not self.cell.metabolism and self.model.metabolism and not self.cell.networks and not self.cell.derived:
            raise ConfigError("the cell graph has no relation", do="set `cell.metabolism: true` or give networks")

    def _validate_names(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise ConfigError("`seed` is out of range", got=self.seed, expected=f"0 … {2**32 - 1}")
        name = Path(self.experiment.name)
        if name.is_absolute() or ".." in name.parts:
            raise ConfigError(
                "`experiment.name` leads out of `paths.runs`",
                got=self.experiment.name,
                expected="a name, or names separated by `/`",
            )

    @property
    def run_directory(self) -> Path:
        """Keyed by experiment and seed, so that a requeued job finds what it wrote."""
        return Path(self.paths.runs) / self.experiment.name / f"seed-{self.seed}"


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read an experiment: the files it extends first, then itself, then the overrides; validated.

    Args:
        path: YAML file; its key ``extends`` names one file or a list, relative to it.
        overrides: ``dotted.key=value``.

    Raises:
        ConfigError: a file is missing or not YAML, a key unknown or mistyped, a value of the wrong type.
    """
    config = parse_config(_layers(Path(path), ()), overrides, where=str(path))
    if not config.experiment.name:
        config.experiment.name = "/".join([*_folders(Path(path)), Path(path).stem])
    config.validate()
    return config


def parse_config(content: DictConfig, overrides: Sequence[str] = (), *, where: str) -> Config:
    """Turn merged YAML into a ``Config``, without the checks between keys.

    Raises:
        ConfigError: see ``load_config``.
    """
    try:
        merged = _merge(where, content, *[_parse_override(override) for override in overrides])
        plain = OmegaConf.to_container(merged, resolve=True)
        assert isinstance(plain, dict)
        _refuse_unknown_keys(plain, Config, "", where)
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), plain))
    except OmegaConfBaseException as error:
        raise ConfigError(
            f"{where}: `{error.full_key}` has a wrong value" if error.full_key else f"{where}: not a configuration",
            got=str(error).splitlines()[0],
        ) from error
    assert isinstance(config, Config)
    return config


def _parse_override(override: str) -> DictConfig:
    key, equals, _ = override.partition("=")
    if not (equals and all(key.split("."))):
        raise ConfigError("an override is not of the form key=value", got=override, do="e.g. trainer.epochs=10")
    try:
        return OmegaConf.from_dotlist([override])
    except yaml.YAMLError as error:
        raise ConfigError(
            f"override `{key}`: its value is not YAML", got=override, do="close brackets and quotes"
        ) from error


def to_yaml(config: Config) -> str:
    """The whole configuration, every default spelled out."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def read_yaml(path: Path) -> DictConfig:
    """One YAML file as it stands.

    Raises:
        ConfigError: it is not YAML, or no mapping.
    """
    try:
        content = OmegaConf.load(path)
    except (yaml.YAMLError, OmegaConfBaseException, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' cannot be read as YAML", got=str(error).replace("\n", " ")) from error
    if not isinstance(content, DictConfig):
        raise ConfigError(f"'{path}' holds no configuration", got=type(content).__name__, expected="a mapping of keys")
    return content


def _layers(path: Path, seen: tuple[Path, ...]) -> DictConfig:
    """``path`` merged over what it extends."""
    if not path.is_file():
        by = f" (extended by '{seen[-1]}')" if seen else ""
        raise ConfigError(f"configuration '{path}' not found{by}", expected="a YAML file")
    if path.resolve() in [p.resolve() for p in seen]:
        raise ConfigError("configurations extend each other in a circle", got=" → ".join(map(str, [*seen, path])))
    own = read_yaml(path)
    extends = own.pop("extends", None) or []
    names = [extends] if isinstance(extends, str) else extends
    if not isinstance(names, list | ListConfig) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"'{path}': `extends` names no files", got=extends, expected="a file name, or a list of them")
    return _merge(str(path), *[_layers(path.parent / name, (*seen, path)) for name in names], own)


def _merge(where: str, *layers: DictConfig) -> DictConfig:
    """Later layers over earlier ones."""
    try:
        merged = OmegaConf.merge(*layers)
    except TypeError as error:
        raise ConfigError(f"{where}: a key is a list in one place and a mapping in another", got=error) from error
    assert isinstance(merged, DictConfig)
    return merged


def _folders(path: Path) -> list[str]:
    """The folders of ``path`` below the last one called ``conf``."""
    folders = list(path.resolve().parent.parts)
    return folders[len(folders) - folders[::-1].index("conf") :] if "conf" in folders else []


def _refuse_unknown_keys(content: dict[Any, Any], kind: type, prefix: str, where: str) -> None:
    hints = get_type_hints(kind)
    for key, value in content.items():
        full = f"{prefix}{key}"
        if key not in hints:
            close = difflib.get_close_matches(str(key), hints, n=1)
            raise ConfigError(
                f"{where}: unknown key `{full}`",
                expected=f"among {', '.join(hints)}",
                do=f"did you mean `{prefix}{close[0]}`?" if close else None,
            )
        _check_below(value, hints[key], full, where)


def _check_below(value: object, hint: Any, full: str, where: str) -> None:
    """Check the keys inside a section, an optional section, or a mapping of names to sections."""
    is_mapping = get_origin(hint) is dict
    sections = [m for m in (hint, *get_args(hint)) if isinstance(m, type) and dataclasses.is_dataclass(m)]
    if not (is_mapping or sections) or value is None:
        return
    if not isinstance(value, dict):
        keys = "names and their values" if is_mapping else ", ".join(get_type_hints(sections[0]))
        raise ConfigError(f"{where}: `{full}` takes no single value", got=value, expected=f"a mapping with {keys}")
    single = is_mapping and get_args(hint)[1] in (str, int, float, bool)
    for name, item in value.items() if single else ():
        if isinstance(item, dict | list):
            raise ConfigError(f"{where}: `{full}.{name}` takes a single value", got=item)
    for section in sections:
        for below, item in [(f"{full}.{n}", v) for n, v in value.items()] if is_mapping else [(full, value)]:
            if isinstance(item, dict):
                _refuse_unknown_keys(item, section, f"{below}.", where)
