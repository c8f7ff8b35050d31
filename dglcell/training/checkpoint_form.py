"""Check whether a run can take up a checkpoint, which must have the form of those that the run itself would write."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping, ModelCheckpoint
from torch import Tensor, nn

from dglcell.config.experiment import Config
from dglcell.errors import listing
from dglcell.files.untrusted import shown
from dglcell.optimizers import OptimizerConfig, make_optimizer
from dglcell.training.checkpoint import misfits, precision_of
from dglcell.training.checkpoint_file import ReadCheckpoint, refuse
from dglcell.training.task import StrainTask

LOSS = "loss."
"""The names of a loss's buffers begin with this text."""


def check_progress(checkpoint: ReadCheckpoint, trainer: pl.Trainer, callbacks: Sequence[Callback]) -> None:
    """Refuse a checkpoint whose loops or callbacks are not those of this run, or contradict its epoch and step.

    Args:
        callbacks: callbacks of the package; the states of others are not checked.

    Raises:
        CheckpointError: a field differs; the error names the first.
    """
    content = checkpoint.content
    remembering = [one for one in callbacks if isinstance(one, ModelCheckpoint | EarlyStopping)]
    expected = {callback.state_key: callback.state_dict() for callback in remembering}
    kept = {key: state for key, state in content["callbacks"].items() if key in expected}
    loop = content["loops"]["fit_loop"]
    _refuse_form(checkpoint, "callbacks", kept, expected)
    _refuse_form(checkpoint, "loops.fit_loop", loop, trainer.fit_loop.state_dict())
    steps = loop["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]["step"]["total"]["completed"]
    counted = loop["epoch_progress"]["current"]["completed"], steps
    stated = checkpoint.epoch, checkpoint.global_step
    if counted != stated:
        got = "epoch {}, step {}; its loops: epoch {}, step {}".format(*stated, *counted)
        raise refuse(checkpoint.path, "is damaged: `epoch` or `global_step` is wrong", got, "the same in both")


def check_weights(checkpoint: ReadCheckpoint, task: StrainTask, config: Config) -> None:
    """Refuse a checkpoint if the form of its weights, or of its optimiser, schedule or loss, is not that of this run.

    Raises:
        CheckpointError: something differs; the error names the first.
    """
    content, floats = checkpoint.content, precision_of(config)
    kept = {name: tensor for name, tensor in content["state_dict"].items() if name.startswith(LOSS)}
    weights = {name: tensor for name, tensor in content["state_dict"].items() if name not in kept}
    expected = {name: tensor for name, tensor in task.state_dict().items() if not name.startswith(LOSS)}
    differing = misfits(weights, expected, floats)
    if differing:
        raise refuse(checkpoint.path, "does not fit the model", listing(differing, 5), "the weights of this run")
    _check_loss(checkpoint, task, kept, floats)
    _check_unfinished(checkpoint, len(task.phenotypes))
    made = task.configure_optimizers()
    optimizer, schedules = (made["optimizer"], [made["lr_scheduler"]]) if isinstance(made, dict) else (made, [])
    states = [schedule["scheduler"].state_dict() for schedule in schedules]
    _refuse_form(checkpoint, "lr_schedulers", content["lr_schedulers"], states)
    _check_optimizer(checkpoint, optimizer, config.optimizer, floats)


def _check_loss(checkpoint: ReadCheckpoint, task: StrainTask, kept: Mapping[str, Tensor], floats: torch.dtype) -> None:
    """Load the kept state of the loss into a copy, and check whether it fits the phenotypes."""
    differing = [
        f"`{name}` {tensor.dtype} {list(tensor.shape)}"
        for name, tensor in kept.items()
        if (tensor.is_floating_point() and tensor.dtype != floats)
        or (name.endswith("variance_T") and not (tensor.shape == (len(task.phenotypes),) and bool((tensor > 0).all())))
        or (name.endswith((".prediction", ".target")) and tensor.shape[1:] != (len(task.phenotypes),))
    ]
    try:
        copy.deepcopy(task.loss).load_state_dict({name.removeprefix(LOSS): tensor for name, tensor in kept.items()})
    except (RuntimeError, KeyError) as error:
        differing.append(" ".join(str(error).split()))
    if differing:
        raise refuse(checkpoint.path, "does not fit the loss", listing(differing, 5), "what the loss of this run keeps")


def _check_unfinished(checkpoint: ReadCheckpoint, phenotypes: int) -> None:
    """Check whether predictions and labels of an unfinished epoch are of these phenotypes."""
    unfinished = checkpoint.content["unfinished"]
    if unfinished is None:
        return
    shapes = [tuple(part.shape[1:]) for part in unfinished["seen"]]
    expected = [(phenotypes,), (phenotypes,)]
    if shapes[:-1] != expected:
        raise refuse(checkpoint.path, "is damaged: `unfinished.seen` is wrong", f"rows of {shapes[:-1]}", expected)


def _check_optimizer(
    checkpoint: ReadCheckpoint, optimizer: torch.optim.Optimizer, config: OptimizerConfig, floats: torch.dtype
) -> None:
    """Compare the optimiser's state with its state after a step of length zero on a copy of the weights."""
    name, (found,) = "optimizer_states.0", checkpoint.content["optimizer_states"]
    fresh = optimizer.state_dict()
    _refuse_form(checkpoint, f"{name}.param_groups", found["param_groups"], fresh["param_groups"])
    if [group["params"] for group in found["param_groups"]] != [group["params"] for group in fresh["param_groups"]]:
        raise refuse(checkpoint.path, f"is damaged: `{name}.param_groups` is wrong", expected="the weights of this run")
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    expected = _stepped(weights, config)
    if expected and checkpoint.global_step and not found["state"]:
        raise refuse(checkpoint.path, f"is damaged: `{name}.state` is empty", expected="what the optimiser keeps")
    unknown = [number for number in found["state"] if number not in expected]
    if unknown:
        raise refuse(checkpoint.path, f"is damaged: `{name}.state` is of no weight", listing(unknown, 5))
    for number, state in found["state"].items():
        _refuse_form(checkpoint, f"{name}.state.{number}", state, expected[number])
        odd = [key for key, v in state.items() if isinstance(v, Tensor) and v.ndim and v.dtype != floats]
        if odd:
            got = str(state[odd[0]].dtype)
            raise refuse(checkpoint.path, f"is damaged: `{name}.state.{number}.{odd[0]}` is wrong", got, floats)


def _stepped(weights: list[nn.Parameter], config: OptimizerConfig) -> dict[int, Any]:
    """Return number of a weight → the optimiser's state of it after a step with a gradient of zero."""
    copies = [nn.Parameter(torch.zeros_like(w, device="cpu"), requires_grad=w.requires_grad) for w in weights]
    for weight in copies:
        weight.grad = torch.zeros_like(weight) if weight.requires_grad else None
    # `capturable` is only for weights on a GPU.
    options = {key: value for key, value in config.options.items() if key != "capturable"}
    optimizer = make_optimizer(replace(config, options=options), copies)
    optimizer.step(lambda: 0.0)
    state: dict[int, Any] = optimizer.state_dict()["state"]
    return state


def _refuse_form(checkpoint: ReadCheckpoint, name: str, found: Any, expected: Any) -> None:
    """Raise CheckpointError where ``found`` has another form than ``expected``."""
    different = form_differs(found, expected, name)
    if different is not None:
        raise refuse(checkpoint.path, f"is damaged: `{different[0]}` is wrong", different[1], different[2])


def form_differs(found: Any, expected: Any, name: str) -> tuple[str, str, str] | None:
    """Find where a state has another form than the expected one: other keys, lengths or types, whatever the values.

    Where the expected state has nothing yet, any single value is accepted.

    Args:
        found: state from a checkpoint.
        expected: state of a run that has not begun.
        name: dotted path of ``found``.

    Returns:
        Dotted path, found value and expected value; None where nothing differs.
    """
    if not _is_like(found, expected):
        return name, shown(found), shown(expected)
    if not isinstance(expected, (Mapping, list, tuple)):
        return None
    if isinstance(expected, Mapping):
        missing, more = [k for k in expected if k not in found], [k for k in found if k not in expected]
        pairs = [(key, found[key], expected[key]) for key in expected if key in found]
    else:
        missing, more = list(range(len(found), len(expected))), list(range(len(expected), len(found)))
        pairs = [(number, *pair) for number, pair in enumerate(zip(found, expected, strict=False))]
    if missing:
        return f"{name}.{missing[0]}", "nothing", shown(expected[missing[0]])
    if more and expected:
        return f"{name}.{more[0]}", shown(found[more[0]]), "nothing"
    if not expected:
        pairs = [(key, found[key], None) for key in more]
    differing = (form_differs(one, other, f"{name}.{key}") for key, one, other in pairs)
    return next((different for different in differing if different is not None), None)


def _is_like(found: Any, expected: Any) -> bool:
    """Return whether a value could stand in the place of another one."""
    if expected is None:
        return found is None or isinstance(found, (bool, int, float, str)) or _is_scalar(found)
    if isinstance(expected, Tensor):
        same = isinstance(found, Tensor) and found.shape == expected.shape
        return same and found.is_floating_point() == expected.is_floating_point()
    if isinstance(expected, Mapping):
        return isinstance(found, Mapping)
    if isinstance(expected, (list, tuple)):
        return isinstance(found, (list, tuple))
    if type(expected) is int:
        return type(found) is int and 0 <= found < 1 << 63
    if type(expected) is float:
        return type(found) in (int, float) and found == found
    return isinstance(found, type(expected))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 0
