"""Find the smallest batch with which training steps reach about their full speed, for `data.batch_size: auto`."""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytorch_lightning as pl
import torch

from dglcell.config.experiment import AUTO, Config
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError
from dglcell.machine.devices import release
from dglcell.runs.directory import RunDirectory
from dglcell.training.batch_trials import PROBE, Trial, available, measure, powers_of_two
from dglcell.training.fit import first_batches, make_task, quieten
from dglcell.training.prepare import Prepared
from dglcell.training.task import StrainTask

SMALLEST, LARGEST = 16, 1024
"""Smaller sizes are tried to see what memory a strain takes, and chosen only where no other fits."""
PART_OF_EPOCH = 4
"""An epoch keeps at least so many steps."""
WORTHWHILE = 1.05
"""Strains per second must grow by this factor for a larger batch to be preferred."""
SECONDS = 60.0

log = logging.getLogger("dglcell")


def find_batch_size(config: Config, prepared: Prepared, directory: RunDirectory, trainer: pl.Trainer) -> int:
    """Choose B by measuring training steps on this machine; the run's weights and random streams are not touched.

    The trainer decides device and precision.

    Raises:
        ConfigError: not even the smallest batch fits into memory.
    """
    device = trainer.strategy.root_device
    sizes = candidates(prepared.training_strains)
    with torch.random.fork_rng([device] if device.type == "cuda" else []), warnings.catch_warnings():
        quieten()
        # The trials have their own model. The run's model is made afterwards, from the seed.
        task = make_task(_plain(config, device).with_batch_size(sizes[0]), prepared, directory)
        trainer.precision_plugin.convert_module(task)
        (largest,) = first_batches(config.with_batch_size(sizes[-1]), prepared, 1)
        work = partial(_step, task.to(device), trainer, largest.to(device))
        trials = search(sizes, partial(measure, work, device), available(device), time.monotonic)
    del task, work, largest
    release(str(device))
    chosen = choose(trials, available(device))
    size = at_least(sizes[0], chosen, available(device))
    rates = ", ".join(f"{trial.batch_size} → {trial.rate:,.0f}" for trial in trials)
    log.info("data.batch_size: auto: %d (strains/s: %s; %s)", size, rates, _memory_text(chosen))
    return size


def _plain(config: Config, device: torch.device) -> Config:
    """Return the configuration with plain layers where a CPU would time forms of layers.

    The forms are timed later, for the batch found here.
    """
    if device.type != "cpu" or config.model.compile != AUTO:
        return config
    trainer = config.trainer
    precision = "32-true" if trainer.precision == AUTO else trainer.precision
    model = replace(config.model, compile="false")  # type: ignore[call-arg]  # a key of those that compile
    return replace(config, model=model, trainer=replace(trainer, precision=precision))


def candidates(strains: int) -> list[int]:
    """Return powers of two, ascending, for a training part of so many strains."""
    largest = max(1, min(LARGEST, strains // PART_OF_EPOCH))
    powers = powers_of_two(largest)
    return [size for size in powers if size >= SMALLEST] or powers[-1:]


def search(
    sizes: Sequence[int], measure: Callable[[int], Trial | None], room: int | None, clock: Callable[[], float]
) -> list[Trial]:
    """Try one size after the other while that is worth it. The first sizes only show how much memory a strain takes.

    The search ends when strains per second have not grown by ``WORTHWHILE``, when the next size is expected to take
    more than ``MEMORY_SHARE`` of the memory or to outlast ``SECONDS``, or when memory has run out.

    Args:
        sizes: sizes to choose from, ascending.
        measure: size → trial; None where memory ran out.
        room: number of available bytes.
    """
    trials: list[Trial] = []
    start = began = clock()
    probes = [size for size in powers_of_two(sizes[0] - 1) if size >= PROBE]
    for size in [*probes, *sizes]:
        last, took, began = (trials[-1] if trials else None), clock() - began, clock()
        if last is not None:
            growth = size // last.batch_size
            if not last.fits(room, growth) or began - start + growth * took > SECONDS:
                break
        trial = measure(size)
        if trial is None:
            break
        trials.append(trial)
        if last is not None and size > sizes[0] and trial.rate < WORTHWHILE * last.rate:
            break
    return [trial for trial in trials if trial.batch_size >= sizes[0]] or trials


def choose(trials: Sequence[Trial], room: int | None) -> Trial:
    """Return the smallest trial that is about as fast as the fastest one that fits into memory.

    Raises:
        ConfigError: no trial fits.
    """
    if not trials:
        raise ConfigError(
            "`data.batch_size: auto`: memory ran out with the smallest batch",
            do="give a smaller number, or lower `model.hidden` or `model.layers`",
        )
    fitting = [trial for trial in trials if trial.fits(room)] or list(trials[:1])
    fastest = max(trial.rate for trial in fitting)
    return min((t for t in fitting if WORTHWHILE * t.rate >= fastest), key=lambda trial: trial.batch_size)


def at_least(smallest: int, chosen: Trial, room: int | None) -> int:
    """Return the chosen size, or the smallest wanted one if there was no time to try it and memory is enough."""
    size = chosen.batch_size
    return smallest if size < smallest and chosen.fits(room, math.ceil(smallest / size)) else size


def _step(task: StrainTask, trainer: pl.Trainer, strains: Strains, size: int) -> None:
    """Run forward, loss and backward of the first strains, with a task that nothing else uses."""
    task.zero_grad()
    # This forgets the predictions of the step before.
    task.on_train_epoch_start()
    with trainer.precision_plugin.train_step_context():
        loss = task.training_step(strains.take(torch.arange(size, device=strains.device)), 0)
    loss.backward()


def _memory_text(trial: Trial) -> str:
    return "memory not measured" if trial.bytes is None else f"{trial.bytes / 2**20:,.0f} MiB"
