"""A search for the best values of some keys of an experiment, judged on the validation part alone."""

from __future__ import annotations

import csv
import json
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import OmegaConf

from dglcell.config import Config
from dglcell.config_io import PACKAGED, load_config, read_yaml
from dglcell.errors import ConfigError, DataError, DglcellError, OwnerError, count, import_optional
from dglcell.files import atomic_file, canonical_hash
from dglcell.metrics import HEADLINE
from dglcell.training.run import train

if TYPE_CHECKING:
    import optuna

log = logging.getLogger("dglcell")

BARE = ("plot=false", "null_models=false")
"""What a trial does without."""

JOURNAL, TABLE, BEST = "journal.log", "trials.csv", "best.yaml"


@dataclass(frozen=True)
class Interval:
    """Numbers from ``low`` to ``high``, both included; whole numbers where both are.

    Attributes:
        low: the smallest.
        high: the largest.
        log: whether orders of magnitude are drawn evenly.
    """

    low: float
    high: float
    log: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the numbers are whole."""
        return isinstance(self.low, int) and isinstance(self.high, int)


Space = Mapping[str, Interval | list[Any]]
"""Dotted key → numbers, or a list of values, among which a search chooses."""


def read_space(path: Path) -> dict[str, Interval | list[Any]]:
    """The keys to search for, from a YAML file: dotted key → list of values, or ``{low: …, high: …, log: true}``.

    Raises:
        ConfigError: the file is missing or not YAML, or a key has neither of them.
    """
    content = OmegaConf.to_container(read_yaml(path))
    assert isinstance(content, dict)
    if not content:
        raise ConfigError(f"'{path}' names no key to search for", expected="e.g. model.hidden: [32, 64]")
    return {str(key): _choices(value, f"'{path}': `{key!s}`") for key, value in content.items()}


def _choices(value: Any, where: str) -> Interval | list[Any]:
    if isinstance(value, list) and len(value) > 1 and not any(isinstance(item, list | dict) for item in value):
        return value
    if isinstance(value, dict) and {"low", "high"} <= value.keys() <= {"low", "high", "log"}:
        low, high, of_logs = value["low"], value["high"], value.get("log", False)
        numbers = all(isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) for n in (low, high))
        if numbers and isinstance(of_logs, bool) and low < high and (low > 0 or not of_logs):
            return Interval(low, high, of_logs)
    raise ConfigError(
        f"{where} has no values to choose from",
        got=value,
        expected="a list of two single values or more, or {low: NUMBER, high: LARGER NUMBER, log: true or false}",
        do="with `log: true` numbers must be above 0",
    )


@dataclass(frozen=True)
class Search:
    """A search that can be stopped and given again, by several processes at once.

    Attributes:
        experiment: its YAML file.
        overrides: of every trial, ``dotted.key=value``.
        space: what is searched.
        base: the experiment with its overrides.
    """

    experiment: Path
    overrides: Sequence[str]
    space: Space
    base: Config

    @classmethod
    def of(cls, experiment: Path, overrides: Sequence[str], space: Space) -> Search:
        """Check all values, each by itself, before anything is trained.

        Raises:
            ConfigError: a key or value is not one of the experiment's, there is no validation part, or several
                devices train.
        """
        base = load_config(experiment, overrides)
        if base.split.kind == "none":
            raise ConfigError(
                "a search needs a validation part", got="split.kind=none", do="choose another split for the search"
            )
        if base.trainer.devices * base.trainer.num_nodes > 1:
            raise ConfigError(
                "a search trains on one device",
                got=f"trainer.devices={base.trainer.devices}, trainer.num_nodes={base.trainer.num_nodes}",
                do="give trainer.devices=1, and start the same command several times to run trials at once",
            )
        for key, choices in space.items():
            for value in [choices.low, choices.high] if isinstance(choices, Interval) else choices:
                load_config(experiment, [*overrides, override(key, value)])
        return cls(experiment, overrides, space, base)

    @property
    def name(self) -> str:
        """Of the folder, and first part of the names of its trials."""
        return f"{self.base.experiment.name}-tuning"

    @property
    def folder(self) -> Path:
        """Where everything of the search is."""
        return Path(self.base.paths.runs) / self.name

    def run(self, trials: int, command: str, report: Callable[[str], None] = print) -> Path:
        """Train until ``trials`` trials are finished, those of earlier calls among them.

        Values are proposed by a tree-structured Parzen estimator (Bergstra et al. 2011, NeurIPS 24). A trial that a
        signal stopped is continued by the next call. One whose training fails is left out.

        Args:
            trials: number of finished trials in the end.
            command: recorded in what is written.
            report: is told of every trial.

        Returns:
            the experiment with the best values, a YAML file.

        Raises:
            ConfigError: the folder is of another experiment or space.
            DglcellError: the first trial fails, or most trials do.
            MissingDependencyError: optuna is not installed.
            StoppedError: a signal came.
        """
        optuna = import_optional("optuna", "`dglcell tune`", "pip install 'dglcell[tune]'")
        study, failed = self._open(optuna), optuna.trial.TrialState.FAIL
        failures = 0
        while (done := len(_finished(study))) < trials:
            trial = study.ask()
            # Processes that search together, and a search that goes on, draw different numbers.
            study.sampler = optuna.samplers.TPESampler(seed=self.base.seed + trial.number)
            values = {key: _suggest(trial, key, choices) for key, choices in self.space.items()}
            number = _number(study, values)
            try:
                score = self._train(number, values, command)
            except DglcellError as error:
                failures += 1
                study.tell(trial, state=failed)
                is_hopeless = not done and not isinstance(error, OwnerError)  # else another process has these values
                if is_hopeless or failures > trials:
                    raise
                log.warning(
                    "trial-%d failed and is left out: %s: %s", number, _shown(values), str(error).splitlines()[0]
                )
                continue
            except BaseException:
                # A signal: the same values come first when the command is given again, and go on where they stopped.
                study.tell(trial, state=failed)
                study.enqueue_trial(values)
                raise
            study.tell(trial, score)
            best = f"best {study.best_value:.4f}; {done + 1} of {trials} done"
            report(f"trial-{number}: {score:.4f} ({best})  {_shown(values)}")
            self._write(study)
        return self.folder / BEST

    def _open(self, optuna: Any) -> Any:
        """The study in the folder, or a new one."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.folder.mkdir(parents=True, exist_ok=True)
        journal = optuna.storages.journal.JournalFileBackend(os.fspath(self.folder / JOURNAL))
        study: Any = optuna.create_study(
            storage=optuna.storages.JournalStorage(journal),
            study_name="tuning",
            direction="maximize",
            load_if_exists=True,
        )
        of_this = canonical_hash([asdict(self.base), {key: repr(value) for key, value in self.space.items()}])
        if study.user_attrs.get("sha256", of_this) != of_this:
            raise ConfigError(
                f"'{self.folder}' holds trials of another experiment or other values",
                do="give the same files and overrides, remove the folder, or set another experiment.name",
            )
        study.set_user_attr("sha256", of_this)
        return study

    def _train(self, number: int, values: Mapping[str, Any], command: str) -> float:
        """Mean over phenotypes of the metric by which models are compared, on the validation part; higher is better."""
        name = f"experiment.name={self.name}/trial-{number}"
        given = [override(key, value) for key, value in values.items()]
        config = load_config(self.experiment, [*self.overrides, *given, *BARE, name])
        rows = train(config, command).rows
        scores = [row.metrics[HEADLINE[row.kind]] for row in rows if row.part == "validation"]
        score = float(np.mean(scores)) if scores else math.nan
        if math.isnan(score):
            raise DataError("the score on the validation part is undefined", got=f"run {config.run_directory}")
        return score

    def _write(self, study: optuna.Study) -> None:
        """The table of all finished trials, the best first, and the experiment with the best values."""
        finished = sorted(_finished(study), key=lambda trial: -trial.value)
        with atomic_file(self.folder / TABLE) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["trial", "validation", *self.space])
            for trial in finished:
                number = _number(study, trial.params)
                writer.writerow([number, f"{trial.value:.6g}", *(trial.params[key] for key in self.space)])
        best = finished[0].params
        given = [*self.overrides, *(override(key, best[key]) for key in self.space)]
        content: Any = OmegaConf.to_container(OmegaConf.from_dotlist(given))
        # What the experiment is expected to reach holds for its own values.
        content.setdefault("experiment", {}).update(name=f"{self.base.experiment.name}-tuned", expected=None)
        text = OmegaConf.to_yaml(OmegaConf.create({"extends": self._extended(), **content}))
        about = f"# The best of {count(len(finished), 'trial')}: {finished[0].value:.4f} on the validation part.\n"
        with atomic_file(self.folder / BEST) as partial:
            partial.write_text(about + text, encoding="utf-8")

    def _extended(self) -> str:
        """The experiment as a file in the folder extends it."""
        path = self.experiment.resolve()
        if path.is_relative_to(PACKAGED.resolve()):
            return path.relative_to(PACKAGED.resolve()).as_posix()
        return os.path.relpath(path, self.folder.resolve())


def override(key: str, value: Any) -> str:
    """``key=value`` as on the command line."""
    return f"{key}={json.dumps(value)}"


def _number(study: optuna.Study, values: Mapping[str, Any]) -> int:
    """Of the first trial with these values, from 1. Later ones are the same training, and go on in its folder."""
    return 1 + min(trial.number for trial in study.get_trials(deepcopy=False) if trial.params == values)


def _finished(study: optuna.Study) -> list[Any]:
    """Trials with a score."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.value is not None]


def _suggest(trial: optuna.Trial, key: str, choices: Interval | list[Any]) -> Any:
    if not isinstance(choices, Interval):
        return trial.suggest_categorical(key, choices)
    if choices.is_whole:
        return trial.suggest_int(key, int(choices.low), int(choices.high), log=choices.log)
    return trial.suggest_float(key, choices.low, choices.high, log=choices.log)


def _shown(values: Mapping[str, Any]) -> str:
    """The values in a line."""
    return " ".join(f"{key}={f'{value:.4g}' if isinstance(value, float) else value}" for key, value in values.items())
