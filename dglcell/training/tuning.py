"""Search for the best values of some keys of an experiment, judged on the validation part alone."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from dglcell.config.experiment import Config
from dglcell.config.read import load_config, override, read_yaml, to_yaml
from dglcell.errors import ConfigError, DataError, DglcellError, OwnerError, count, import_optional
from dglcell.files.atomic import atomic_file, canonical_hash
from dglcell.metrics import HEADLINE
from dglcell.training.run import train
from dglcell.training.signals import StopSignals

log = logging.getLogger("dglcell")

BARE = ("plot=false", "baselines=false")  # of trials
TABLE, BEST = "trials.csv", "best.yaml"

# Dotted keys → the values among which a search chooses: a list of them, or a number from ``low`` to ``high``, both
# included, which is whole if both ends are; with ``log`` it is drawn evenly on a logarithmic scale.
Space = Mapping[str, list[Any] | dict[str, Any]]


def read_space(path: Path) -> Space:
    """Read the keys to search for from YAML: dotted key → list of values, or ``{low: …, high: …, log: true}``."""
    content: Any = OmegaConf.to_container(read_yaml(path))
    if not content:
        raise ConfigError(f"'{path}' names no key to search for", expected="e.g. model.hidden: [32, 64]")
    for key, value in content.items():
        if not _is_choice(value):
            what, do = f"'{path}': `{key!s}` has no values to choose from", "with `log: true` numbers must be above 0"
            expected = "a list of two single values or more, or {low: NUMBER, high: LARGER NUMBER, log: true or false}"
            raise ConfigError(what, got=value, expected=expected, do=do)
    return {str(key): value for key, value in content.items()}


def _is_choice(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) > 1 and not any(isinstance(item, list | dict) for item in value)
    if not isinstance(value, dict) or not {"low", "high"} <= value.keys() <= {"low", "high", "log"}:
        return False
    low, high, log = value["low"], value["high"], value.get("log", False)
    numbers = all(type(n) in (int, float) and math.isfinite(n) for n in (low, high))
    return numbers and isinstance(log, bool) and low < high and (low > 0 or not log)


@dataclass(frozen=True)
class Search:
    """A search can be stopped and started again, and several processes can take part in it at once."""

    experiment: Path  #: YAML file of the experiment
    overrides: Sequence[str]  #: overrides of every trial, ``dotted.key=value``
    space: Space  #: the keys and values that are searched
    base: Config  #: the experiment with its overrides

    @classmethod
    def of(cls, experiment: Path, overrides: Sequence[str], space: Space) -> Search:
        """Check all values, each by itself, before anything is trained."""
        base = load_config(experiment, overrides)
        if base.split.kind == "none":
            do = "choose another split for the search"
            raise ConfigError("a search needs a validation part", got="split.kind=none", do=do)
        if base.trainer.devices * base.trainer.num_nodes > 1:
            do = "give trainer.devices=1, and start the same command several times to run trials at once"
            raise ConfigError("a search trains on one device", do=do)
        for key, choices in space.items():
            for value in [choices["low"], choices["high"]] if isinstance(choices, dict) else choices:
                load_config(experiment, [*overrides, override(key, value)])
        return cls(experiment, overrides, space, base)

    @property
    def name(self) -> str:
        """Return the name of the folder of all files of the search, with which the names of its trials begin."""
        return f"{self.base.experiment.name}-tuning"

    @property
    def folder(self) -> Path:
        return Path(self.base.paths.runs) / self.name

    def run(self, trials: int, command: str, report: Callable[[str], None] = print) -> Path:
        """Train until ``trials`` trials are finished, those of earlier calls too; return the file with the best values.

        Values are proposed by a tree-structured Parzen estimator (Bergstra et al. 2011, NeurIPS 24). Optuna keeps the
        trials in a file that several processes may share. A trial whose process was stopped or killed is continued by
        the next call, and one whose training fails is left out.
        """
        optuna = import_optional("optuna", "`dglcell tune`", "pip install 'dglcell[tune]'")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = self._study(optuna)
        with StopSignals(self.base.slurm.requeue) as signals:
            for number, values in self._trials(study, trials, optuna):
                try:
                    known = next((one.value for one in _finished(study) if one.params == values), None)
                    score = self._train(number, values, command, signals) if known is None else known
                except OwnerError:
                    continue  # another process trains it
                except DglcellError as error:
                    reason = str(error).splitlines()[0]
                    study.tell(number, state=optuna.trial.TrialState.FAIL, skip_if_finished=True)
                    failed = sum(one.state == optuna.trial.TrialState.FAIL for one in study.trials)
                    if not _finished(study) or failed > trials:
                        raise
                    log.warning("trial-%d failed and is left out: %s: %s", number, _shown(values), reason)
                else:
                    study.tell(number, score, skip_if_finished=True)
                    found = _finished(study)
                    best = f"best {found[0].value:.4f}; {len(found)} of {trials} done"
                    report(f"trial-{number}: {score:.4f} ({best})  {_shown(values)}")
        if _finished(study):
            self._write_results(study)
        return self.folder / BEST

    def _study(self, optuna: Any) -> Any:
        """Open the file of trials, or begin one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        backend = optuna.storages.journal.JournalFileBackend(str(self.folder / "trials.log"))
        storage = optuna.storages.JournalStorage(backend)
        study = optuna.create_study(storage=storage, study_name=self.name, direction="maximize", load_if_exists=True)
        # Of the settings that all trials share, without secrets.
        sha256 = canonical_hash([to_yaml(self.base), {key: repr(value) for key, value in self.space.items()}])
        if study.user_attrs.get("sha256", sha256) != sha256:
            do = "give the same files and overrides, remove the folder, or set another experiment.name"
            raise ConfigError(f"'{self.folder}' holds trials of another experiment or other values", do=do)
        study.set_user_attr("sha256", sha256)
        return study

    def _trials(self, study: Any, wanted: int, optuna: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield number and values of trials that are to be trained, first those that a process has not finished."""
        distributions = {key: _distribution(choices, optuna) for key, choices in self.space.items()}
        for one in _running(study):
            if one.params.keys() == self.space.keys():
                yield one.number, one.params
            else:  # the process was killed while it drew values
                study.tell(one.number, state=optuna.trial.TrialState.FAIL, skip_if_finished=True)
        while len(_finished(study)) + len(_running(study)) < wanted:
            # The values follow from the seed, the number of trials, and the finished trials.
            study.sampler = optuna.samplers.TPESampler(seed=self.base.seed + len(study.trials))
            trial = study.ask(distributions)
            yield trial.number, trial.params

    def _train(self, number: int, values: Mapping[str, Any], command: str, signals: StopSignals) -> float:
        """Train, and return the mean over phenotypes of the metric by which models are compared; higher is better."""
        given = [override(key, value) for key, value in values.items()]
        name = f"experiment.name={self.name}/trial-{number}"
        config = load_config(self.experiment, [*self.overrides, *given, *BARE, name])
        rows = train(config, command, signals).rows
        scores = [row.metrics[HEADLINE[row.kind]] for row in rows if row.part == "validation"]
        score = float(np.mean(scores)) if scores else math.nan
        if math.isnan(score):
            do = "see its results.json; a larger validation part (`split`) or a smaller `optimizer.lr` may help"
            raise DataError(f"the score of '{config.run_directory}' on the validation part is undefined", do=do)
        return score

    def _write_results(self, study: Any) -> None:
        finished = _finished(study)
        rows = [[trial.number, f"{trial.value:.6g}", *(trial.params[key] for key in self.space)] for trial in finished]
        with atomic_file(self.folder / TABLE) as partial:
            pd.DataFrame(rows, columns=["trial", "validation", *self.space], dtype=object).to_csv(partial, index=False)
        best = finished[0]
        config = load_config(self.experiment, [*self.overrides, *(override(*one) for one in best.params.items())])
        # The scores that the experiment is expected to reach hold only for its own values.
        config.experiment.name, config.experiment.expected = f"{config.experiment.name}-tuned", None
        config.slurm.environment.clear()  # variables of a job may be secrets, and no training depends on them
        about = f"# The best of {count(len(finished), 'trial')}: {best.value:.4f} on the validation part.\n"
        with atomic_file(self.folder / BEST) as partial:
            partial.write_text(about + to_yaml(config), encoding="utf-8")


def _finished(study: Any) -> list[Any]:
    return sorted((one for one in study.trials if one.value is not None), key=lambda one: -one.value)


def _running(study: Any) -> list[Any]:
    return [one for one in study.trials if one.state.name == "RUNNING"]  # or left unfinished


def _distribution(choices: list[Any] | dict[str, Any], optuna: Any) -> Any:
    kinds = optuna.distributions
    if isinstance(choices, list):
        return kinds.CategoricalDistribution(choices)
    whole = isinstance(choices["low"], int) and isinstance(choices["high"], int)
    return (kinds.IntDistribution if whole else kinds.FloatDistribution)(**choices)


def _shown(values: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={f'{value:.4g}' if isinstance(value, float) else value}" for key, value in values.items())
