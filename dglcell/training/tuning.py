"""Search for the best values of some keys of an experiment, judged on the validation part alone."""

from __future__ import annotations

import csv
import json
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from dglcell.config.experiment import Config
from dglcell.config.read import PACKAGED, load_config, read_yaml, to_yaml
from dglcell.errors import ConfigError, DataError, DglcellError, OwnerError, count, import_optional
from dglcell.files.atomic import atomic_file, canonical_hash, only_writer, write_json
from dglcell.files.owner import Lease, held
from dglcell.files.untrusted import (
    COUNT,
    NUMBER,
    SHA256,
    TEXT,
    Kind,
    damaged,
    find_wrong,
    list_of,
    optional,
    read_fields,
    record,
)
from dglcell.metrics import HEADLINE
from dglcell.training.run import train
from dglcell.training.signals import StopSignals

log = logging.getLogger("dglcell")

BARE = ("plot=false", "null_models=false")
"""These settings are switched off in a trial."""

TRIALS, TABLE, BEST = "trials.json", "trials.csv", "best.yaml"


@dataclass(frozen=True)
class Interval:
    """An interval has the numbers from ``low`` to ``high``, both included; they are whole numbers if both ends are.

    Attributes:
        low: the smallest number.
        high: the largest number.
        log: whether values are drawn evenly on a logarithmic scale.
    """

    low: float
    high: float
    log: bool = False

    @property
    def is_whole(self) -> bool:
        """Return whether the numbers are whole."""
        return isinstance(self.low, int) and isinstance(self.high, int)


Space = Mapping[str, Interval | list[Any]]
"""A space maps each dotted key to an interval or a list of values, among which a search chooses."""


def read_space(path: Path) -> dict[str, Interval | list[Any]]:
    """Read the keys to search for from YAML: dotted key → list of values, or ``{low: …, high: …, log: true}``.

    Raises:
        ConfigError: the file is missing or not YAML, or a key has neither of these forms.
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
class Trial:
    """A trial tries some values; its training is unfinished as long as it has neither a score nor an error.

    Attributes:
        number: number of the first trial with these values, from 1. Later trials with them continue in its folder.
        values: dotted key → value.
        score: score on the validation part.
        error: reason why the training failed.
    """

    number: int
    values: dict[str, Any]
    score: float | None = None
    error: str | None = None

    @property
    def name(self) -> str:
        """Return the name of the trial's folder."""
        return f"trial-{self.number}"

    @property
    def is_unfinished(self) -> bool:
        """Return whether the trial is still to be trained."""
        return self.score is None and self.error is None


@dataclass(frozen=True)
class Search:
    """A search can be stopped and started again, and several processes can take part in it at once.

    Attributes:
        experiment: YAML file of the experiment.
        overrides: overrides of every trial, ``dotted.key=value``.
        space: the keys and values that are searched.
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
            ConfigError: a key or value does not fit the experiment, there is no validation part, or several
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
        """Return the name of the folder, with which the names of its trials begin."""
        return f"{self.base.experiment.name}-tuning"

    @property
    def folder(self) -> Path:
        """Return the folder of all files of the search."""
        return Path(self.base.paths.runs) / self.name

    def run(self, trials: int, command: str, report: Callable[[str], None] = print) -> Path:
        """Train until ``trials`` trials are finished, those of earlier calls too; return the file with the best values.

        Values are proposed by a tree-structured Parzen estimator (Bergstra et al. 2011, NeurIPS 24). A trial whose
        process was stopped or killed is continued by the next call. One whose training fails is left out. The outcome
        of a single process does not depend on when it was stopped or killed.

        Args:
            trials: number of finished trials in the end.
            report: receives a message about every trial.

        Raises:
            ConfigError: the folder belongs to another experiment or space.
            DataError: the record of trials is damaged.
            DglcellError: the first trial fails, or most trials do.
            MissingDependencyError: optuna is not installed.
            OwnerError: another process that is not part of the search trains in the folder of a trial.
            StoppedError: a signal came.
        """
        optuna = import_optional("optuna", "`dglcell tune`", "pip install 'dglcell[tune]'")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with StopSignals(self.base.slurm.requeue) as signals:
            while (taken := self._take(trials, optuna)) is not None:
                trial, lease = taken
                try:
                    score = self._train(trial, command, signals)
                except OwnerError:
                    raise
                except DglcellError as error:
                    reason = str(error).splitlines()[0]
                    found = self._finish(trial, lease, error=reason)
                    if not _finished(found) or sum(one.error is not None for one in found) > trials:
                        raise
                    log.warning("%s failed and is left out: %s: %s", trial.name, _shown(trial.values), reason)
                else:
                    found = _finished(self._finish(trial, lease, score=score))
                    best = f"best {found[0].score:.4f}; {len(found)} of {trials} done"
                    report(f"{trial.name}: {score:.4f} ({best})  {_shown(trial.values)}")
                finally:
                    lease.release()
        return self.folder / BEST

    def _take(self, wanted: int, optuna: Any) -> tuple[Trial, Lease] | None:
        """Take the first unfinished trial that no other process trains, or else a new one; None if enough are finished.

        If other processes train all missing trials, it waits for one of them.
        """
        while True:
            with only_writer(self.folder):
                trials = self._read()
                finished = len(_finished(trials))
                if finished >= wanted:
                    self._write_results(trials)
                    return None
                unfinished = [trial for trial in trials if trial.is_unfinished]
                for trial in unfinished:
                    lease = self._lease(trial)
                    if lease.acquire() is None:
                        return trial, lease
                if finished + len(unfinished) < wanted:
                    self._write([*trials, self._propose(trials, optuna)])
                    continue
            with held(self._lease(unfinished[0]), lambda holder: math.inf):
                pass

    def _finish(self, trial: Trial, lease: Lease, **outcome: Any) -> list[Trial]:
        """Record how a trial ended, and return all trials."""
        with only_writer(self.folder):
            # If the process is killed before the record, the trial is free again and only its score is computed again.
            lease.release()
            trials = [replace(one, **outcome) if one == trial else one for one in self._read()]
            self._write(trials)
            if _finished(trials):
                self._write_results(trials)
        return trials

    def _lease(self, trial: Trial) -> Lease:
        """Return the lease for training a trial."""
        return Lease(self.folder / f".{trial.name}.owner.json", self.folder / trial.name)

    def _propose(self, trials: Sequence[Trial], optuna: Any) -> Trial:
        """Propose the next trial: its values follow from the seed, the number of trials, and the finished trials."""
        distributions = {key: _distribution(choices, optuna) for key, choices in self.space.items()}
        sampler = optuna.samplers.TPESampler(seed=self.base.seed + len(trials))
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials(
            optuna.trial.create_trial(params=trial.values, distributions=distributions, value=trial.score)
            for trial in trials
            if trial.score is not None
        )
        values = study.ask(distributions).params
        return Trial(next((trial.number for trial in trials if trial.values == values), len(trials) + 1), values)

    def _read(self) -> list[Trial]:
        """Read all trials, in the order in which they were proposed."""
        path = self.folder / TRIALS
        if not path.exists():
            return []
        values = Kind("a value of each key", lambda v: isinstance(v, dict) and v.keys() == self.space.keys())
        trial = record({"number": COUNT, "values": values, "score": optional(NUMBER), "error": optional(TEXT)})
        expected, do = "the trials of a search", "put the file back, or remove the folder"
        content = read_fields(path, {"sha256": SHA256}, DataError, expected=expected, do=do)
        if content["sha256"] != self._sha256:
            raise ConfigError(
                f"'{self.folder}' holds trials of another experiment or other values",
                do="give the same files and overrides, remove the folder, or set another experiment.name",
            )
        if wrong := find_wrong(content, {"trials": list_of(trial)}):
            raise damaged(path, wrong, DataError, expected=expected, do=do)
        return [Trial(**about) for about in content["trials"]]

    def _write(self, trials: Sequence[Trial]) -> None:
        write_json(self.folder / TRIALS, {"sha256": self._sha256, "trials": [asdict(trial) for trial in trials]})

    @cached_property
    def _sha256(self) -> str:
        """Return the SHA-256 of the settings that all trials share, without secrets."""
        return canonical_hash([to_yaml(self.base), {key: repr(value) for key, value in self.space.items()}])

    def _train(self, trial: Trial, command: str, signals: StopSignals) -> float:
        """Train, and return the mean over phenotypes of the model score on the validation part.

        The score is the metric by which models are compared; higher is better.
        """
        given = [override(key, value) for key, value in trial.values.items()]
        name = f"experiment.name={self.name}/{trial.name}"
        config = load_config(self.experiment, [*self.overrides, *given, *BARE, name])
        rows = train(config, command, signals).rows
        scores = [row.metrics[HEADLINE[row.kind]] for row in rows if row.part == "validation"]
        score = float(np.mean(scores)) if scores else math.nan
        if math.isnan(score):
            raise DataError(
                "the score on the validation part is undefined",
                got=f"run {config.run_directory}",
                do="see its results.json; a larger validation part (`split`) or a smaller `optimizer.lr` may help",
            )
        return score

    def _write_results(self, trials: Sequence[Trial]) -> None:
        """Write the table of all finished trials, the best first, and the experiment with the best values."""
        finished = _finished(trials)
        with atomic_file(self.folder / TABLE) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["trial", "validation", *self.space])
            for trial in finished:
                writer.writerow([trial.number, f"{trial.score:.6g}", *(trial.values[key] for key in self.space)])
        best = finished[0]
        given = [*self.overrides, *(override(key, best.values[key]) for key in self.space)]
        content: Any = OmegaConf.to_container(OmegaConf.from_dotlist(given))
        # Variables of a job may be secrets, and no training depends on them.
        content.get("slurm", {}).pop("environment", None)
        # The scores that the experiment is expected to reach hold only for its own values.
        content.setdefault("experiment", {}).update(name=f"{self.base.experiment.name}-tuned", expected=None)
        text = OmegaConf.to_yaml(OmegaConf.create({"extends": self._extended(), **content}))
        about = f"# The best of {count(len(finished), 'trial')}: {best.score:.4f} on the validation part.\n"
        with atomic_file(self.folder / BEST) as partial:
            partial.write_text(about + text, encoding="utf-8")

    def _extended(self) -> str:
        """Return the path of the experiment as a file in the folder extends it."""
        path = self.experiment.resolve()
        if path.is_relative_to(PACKAGED.resolve()):
            return path.relative_to(PACKAGED.resolve()).as_posix()
        return os.path.relpath(path, self.folder.resolve())


def override(key: str, value: Any) -> str:
    """Return ``key=value`` as on the command line."""
    return f"{key}={json.dumps(value)}"


def _finished(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials with a score, the best first."""
    return sorted((trial for trial in trials if trial.score is not None), key=lambda trial: -(trial.score or 0.0))


def _distribution(choices: Interval | list[Any], optuna: Any) -> Any:
    if not isinstance(choices, Interval):
        return optuna.distributions.CategoricalDistribution(choices)
    if choices.is_whole:
        return optuna.distributions.IntDistribution(int(choices.low), int(choices.high), log=choices.log)
    return optuna.distributions.FloatDistribution(choices.low, choices.high, log=choices.log)


def _shown(values: Mapping[str, Any]) -> str:
    """Return the values in one line."""
    return " ".join(f"{key}={f'{value:.4g}' if isinstance(value, float) else value}" for key, value in values.items())
