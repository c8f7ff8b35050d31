"""A search for the best values of some keys of an experiment, judged on the validation part alone."""

from __future__ import annotations

import csv
import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from dglcell.config import Config
from dglcell.config_io import PACKAGED, load_config, read_yaml
from dglcell.errors import ConfigError, DataError, DglcellError, OwnerError, count, import_optional
from dglcell.files import atomic_file, canonical_hash, only_writer, write_json
from dglcell.metrics import HEADLINE
from dglcell.outside import UnreadableError, read_json
from dglcell.owner import Process, lives
from dglcell.training.run import train

log = logging.getLogger("dglcell")

BARE = ("plot=false", "null_models=false")
"""What a trial does without."""

TRIALS, TABLE, BEST = "trials.json", "trials.csv", "best.yaml"
RUNNING, FINISHED, FAILED, STOPPED = "running", "finished", "failed", "stopped"


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
        signal stopped, or whose process has ended, is continued by the next call. One whose training fails is left out.

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
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.folder.mkdir(parents=True, exist_ok=True)
        failures = 0
        while (trial := self._begin(optuna, trials)) is not None:
            try:
                score = self._train(self._run_of(trial), trial.values, command)
            except DglcellError as error:
                failures += 1
                finished = _finished(self._end(trial, FAILED))
                is_hopeless = not finished and not isinstance(
                    error, OwnerError
                )  # else another process has these values
                if is_hopeless or failures > trials:
                    raise
                reason = str(error).splitlines()[0]
                log.warning("trial-%d failed and is left out: %s: %s", trial.number, _shown(trial.values), reason)
                continue
            except BaseException:
                # A signal: the same values come first when the command is given again, and go on where they stopped.
                self._end(trial, STOPPED)
                raise
            finished = _finished(self._end(trial, FINISHED, score))
            best = f"best {max(one.score for one in finished):.4f}; {len(finished)} of {trials} done"
            report(f"trial-{trial.number}: {score:.4f} ({best})  {_shown(trial.values)}")
        self._write()
        return self.folder / BEST

    def _begin(self, optuna: Any, wanted: int) -> Trial | None:
        """The next trial, noted as this process's: first one that nobody runs any more; None where all are done.

        What is proposed follows from the numbers and scores of the trials before it. So a search that was killed
        goes on as if it had not been.
        """
        with self._changing() as trials:
            if len(_finished(trials)) >= wanted:
                return None
            left = (one for one in trials if one.state == STOPPED or (one.state == RUNNING and one.is_abandoned()))
            number = 1 + len(trials)
            trial = next(left, None) or Trial(number, _proposed(optuna, self.space, trials, self.base.seed + number))
            trial = replace(trial, state=RUNNING, process=Process.this().mark)
            trials[trial.number - 1 : trial.number] = [trial]
            return trial

    def _end(self, trial: Trial, state: str, score: float | None = None) -> list[Trial]:
        """Note how a trial ended; gives all trials."""
        with self._changing() as trials:
            trials[trial.number - 1] = replace(trial, state=state, score=score, process="")
        self._write()
        return trials

    @contextmanager
    def _changing(self) -> Iterator[list[Trial]]:
        """The trials so far, of which no other process changes any meanwhile; written when the block ends."""
        path = self.folder / TRIALS
        with only_writer(path):
            trials = self._read()
            before = list(trials)
            yield trials
            if trials != before:
                write_json(path, {"sha256": self._sha256, "trials": [asdict(trial) for trial in trials]})

    def _read(self) -> list[Trial]:
        path = self.folder / TRIALS
        if not path.exists():
            return []
        try:
            content = read_json(path)
            sha256, trials = content["sha256"], [Trial(**trial) for trial in content["trials"]]
        except (UnreadableError, KeyError, TypeError) as error:
            raise ConfigError(
                f"'{path}' is no list of trials", got=error, do="put the file back, or remove the folder and begin anew"
            ) from error
        if sha256 != self._sha256:
            raise ConfigError(
                f"'{self.folder}' holds trials of another experiment or other values",
                do="give the same files and overrides, remove the folder, or set another experiment.name",
            )
        return trials

    @property
    def _sha256(self) -> str:
        """Of experiment and space."""
        return canonical_hash([asdict(self.base), {key: repr(value) for key, value in self.space.items()}])

    def _run_of(self, trial: Trial) -> int:
        """The first trial with the same values, whose training it is: later ones go on in its folder."""
        return next(one.number for one in [*self._read(), trial] if one.values == trial.values)

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

    def _write(self) -> None:
        """The table of all finished trials, the best first, and the experiment with the best values."""
        finished = sorted(_finished(self._read()), key=lambda trial: -trial.score)
        if not finished:
            return
        with atomic_file(self.folder / TABLE) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["trial", "validation", *self.space])
            for trial in finished:
                values = [trial.values[key] for key in self.space]
                writer.writerow([self._run_of(trial), f"{trial.score:.6g}", *values])
        best = finished[0].values
        given = [*self.overrides, *(override(key, best[key]) for key in self.space)]
        content: Any = OmegaConf.to_container(OmegaConf.from_dotlist(given))
        # The file may be given away; values of the environment may be secrets.
        content.get("slurm", {}).pop("environment", None)
        # What the experiment is expected to reach holds for its own values.
        content.setdefault("experiment", {}).update(name=f"{self.base.experiment.name}-tuned", expected=None)
        text = OmegaConf.to_yaml(OmegaConf.create({"extends": self._extended(), **content}))
        about = f"# The best of {count(len(finished), 'trial')}: {finished[0].score:.4f} on the validation part.\n"
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


@dataclass(frozen=True)
class Trial:
    """Values that were tried, or are.

    Attributes:
        number: from 1.
        values: dotted key → value.
        state: ``running``, ``finished``, ``failed``, or ``stopped`` by a signal.
        score: on the validation part, of a finished one.
        process: that runs it; see ``dglcell.owner.lives``.
    """

    number: int
    values: dict[str, Any]
    state: str = RUNNING
    score: float | None = None
    process: str = ""

    def is_abandoned(self) -> bool:
        """Whether the process that ran it has ended. One of another machine counts as living."""
        return lives(self.process) is False


def _finished(trials: Sequence[Trial]) -> list[Any]:
    """Trials with a score."""
    return [trial for trial in trials if trial.state == FINISHED]


def _proposed(optuna: Any, space: Space, trials: Sequence[Trial], seed: int) -> dict[str, Any]:
    """Values to try next, from the scores of earlier ones."""
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    distributions = {key: _distribution(optuna, choices) for key, choices in space.items()}
    for trial in _finished(trials):
        study.add_trial(optuna.trial.create_trial(params=trial.values, distributions=distributions, value=trial.score))
    return dict(study.ask(distributions).params)


def _distribution(optuna: Any, choices: Interval | list[Any]) -> Any:
    if not isinstance(choices, Interval):
        return optuna.distributions.CategoricalDistribution(choices)
    if choices.is_whole:
        return optuna.distributions.IntDistribution(int(choices.low), int(choices.high), log=choices.log)
    return optuna.distributions.FloatDistribution(choices.low, choices.high, log=choices.log)


def _shown(values: Mapping[str, Any]) -> str:
    """The values in a line."""
    return " ".join(f"{key}={f'{value:.4g}' if isinstance(value, float) else value}" for key, value in values.items())
