"""The same benchmark on an experiment's own cell graph, model and strains."""

from __future__ import annotations

import dataclasses

import torch

from dglcell.config import Config
from dglcell.errors import ConfigError
from dglcell.models.config import HeteroCellConfig
from dglcell.profiling.bench.setting import Setting
from dglcell.profiling.bench.workload import Workload
from dglcell.training.prepare import Prepared


def experiment_workload(config: Config, prepared: Prepared, setting: Setting) -> Workload:
    """B strains of the training part with standardised labels; unmeasured ones count as the mean.

    Args:
        config: whose model is used; ``setting`` replaces its convolution, width and layers, and takes dropout away.
        prepared: from ``config``.
        setting: with B.

    Raises:
        ConfigError: the training part has fewer strains than the batch.
    """
    train, batch = prepared.parts["train"], setting.batch
    if len(train) < batch:
        raise ConfigError("the training part is smaller than the batch", got=len(train), expected=f"{batch} or more")
    strains = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(config.seed))[:batch]]
    data = prepared.dataset.gather(strains, int(prepared.dataset.offsets.diff()[strains].sum()))
    labels = data.labels.float()
    targets = (labels - labels.nanmean(0)) / labels.nan_to_num(0.0).std(0, correction=0).clamp(min=1e-6)
    model = dataclasses.replace(
        hetero_model(config), conv=setting.conv, hidden=setting.hidden, layers=setting.layers, dropout=0.0
    )
    return Workload(prepared.cell, model, data.genotypes, targets.nan_to_num(0.0), prepared.features, config.seed)


def hetero_model(config: Config) -> HeteroCellConfig:
    """The model of an experiment, for methods that all compute the heterograph model.

    Raises:
        ConfigError: it is another one.
    """
    if not isinstance(config.model, HeteroCellConfig):
        raise ConfigError(
            "`dglcell bench` compares ways to compute the heterograph model",
            got=f"`model.name: {config.model.name}`",
            expected="`model.name: hetero_cell`",
        )
    return config.model
