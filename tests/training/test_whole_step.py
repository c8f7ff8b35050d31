"""Steps as one piece: what Lightning does step by step, bit for bit; and when a recorded step may be used."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dglcell.config.read import load_config
from dglcell.data.strains import PHENOTYPE, Column, Strains
from dglcell.errors import ConfigError
from dglcell.optimizers import CAPTURABLE, OptimizerConfig, make_optimizer
from dglcell.runs.directory import RunDirectory
from dglcell.training.fit import fit, make_callbacks, make_task, make_trainer
from dglcell.training.prepare import prepare
from dglcell.training.run import check_machine, set_up_process
from dglcell.training.signals import StopSignals
from dglcell.training.whole_step import WARM_UP, Replay, WholeStep, Work
from tests.tiny import BARE, Tiny, history


def record(work: Work, batch: Strains) -> Replay:
    """What a CUDA graph does, on a CPU: the same work on the same tensors, whenever it is asked for."""
    return lambda: work(batch)


def plainly(work: Work, batch: Strains) -> Sequence[Tensor]:
    return work(batch)


def trained(tiny: Tiny, folder: Path, *, whole: bool) -> tuple[dict[str, Tensor], RunDirectory]:
    """Weights after two epochs, and where the record is."""
    config = tiny.config(folder, *BARE, "data.batch_size=40", "model.dropout=0.1")
    directory, signals = RunDirectory(config.run_directory), StopSignals(False)
    directory.checkpoints.mkdir(parents=True)
    set_up_process(config)
    prepared = prepare(config, command="test")
    trainer = make_trainer(config, directory, make_callbacks(config, directory, prepared.dataset.kinds, signals))
    task = make_task(config, prepared, directory)
    if whole:
        task.whole_step = WholeStep(task._whole, record, plainly)
    fit(config, trainer, prepared, task, directory, None, signals)
    return task.state_dict(), directory


def test_whole_steps_are_lightnings_bit_for_bit(tiny: Tiny, tmp_path: Path) -> None:
    (expected, plain), (found, whole) = (trained(tiny, tmp_path / str(w), whole=w) for w in (False, True))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert history(whole) == history(plain)
    last = [torch.load(directory.last, weights_only=True) for directory in (plain, whole)]
    assert last[0]["global_step"] == last[1]["global_step"] > WARM_UP
    assert last[0]["loops"] == last[1]["loops"]


def batch_of(strains: int, first: float) -> Strains:
    labels = {Column(PHENOTYPE, "y"): torch.arange(strains) + first}
    names = tuple(map(str, range(strains)))
    return Strains.from_indices(names, [[number] for number in range(strains)]).with_(columns=labels).to("cpu")


def test_a_step_is_recorded_where_another_of_its_shape_and_rate_follows() -> None:
    log: list[str] = []

    def work(batch: Strains) -> list[Tensor]:
        log.append("work")
        return [batch.labels]

    def recorded(work: Work, batch: Strains) -> Replay:
        log.append("record")

        def replay() -> Sequence[Tensor]:
            log.append("replay")
            return [batch.labels]

        return replay

    def step(strains: int, first: float, key: int) -> str:
        log.clear()
        batch = batch_of(strains, first)
        assert torch.equal(whole(batch, key)[0], batch.labels)
        return " ".join(log)

    whole = WholeStep(work, recorded, plainly)
    assert {step(4, 0.0, 0) for _ in range(WARM_UP)} == {"work"}
    found = [step(*arguments) for arguments in ((4, 1.0, 0), (4, 2.0, 0), (4, 3.0, 0), (3, 4.0, 0), (4, 5.0, 1))]
    assert found == ["work", "record replay", "replay", "work", "work"]
    found = [step(4, 6.0, 1), step(4, 7.0, 1), step(4, 8.0, 2)]
    assert found == ["record replay", "replay", "record replay"]


def test_results_of_a_replay_are_kept() -> None:
    whole = WholeStep(lambda batch: [batch.labels], record, plainly)
    results = [whole(batch_of(4, float(number)), 0)[0] for number in range(WARM_UP + 4)]
    assert [float(result[0]) for result in results] == [float(number) for number in range(WARM_UP + 4)]


GOOD = ["trainer.accelerator=gpu", "trainer.cuda_graph=true", "model.recompute=false"]


@pytest.mark.parametrize(
    ("override", "key", "expected"),
    [
        ("trainer.accelerator=cpu", "trainer.accelerator", "gpu or cuda or auto"),
        ("trainer.devices=2", "trainer.devices", "1"),
        ("trainer.accumulate_grad_batches={0: 2}", "trainer.accumulate_grad_batches", "{}"),
        ("scheduler={name: cosine_restarts, interval: step}", "scheduler.interval", "epoch"),
        ("optimizer.name=Adagrad", "optimizer.name", "AdamW"),
        ("model={name: set_operator, hidden: 8}", "model.name", "hetero_cell"),
        ("model.strategy=difference", "model.strategy", "node_mask or auto"),
        ("model.conv=gatv2", "model.conv", "gin or sage"),
        ("model.recompute=auto", "model.recompute", "false"),
        ("cell.lose_blocked=true", "cell.lose_blocked", "False"),
    ],
)
def test_what_a_graph_cannot_hold_is_refused(tiny: Tiny, override: str, key: str, expected: str) -> None:
    load_config(tiny.file, GOOD)
    with pytest.raises(ConfigError) as caught:
        load_config(tiny.file, [*GOOD, override])
    text = str(caught.value)
    assert f"`trainer.cuda_graph: true` does not go with this `{key}`" in text
    assert expected in text
    assert "set `trainer.cuda_graph: false`" in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_a_graph_needs_a_gpu(tiny: Tiny) -> None:
    config = load_config(tiny.file, GOOD)
    with pytest.raises(ConfigError, match=r"`trainer.cuda_graph: true` needs a GPU"):
        check_machine(dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, accelerator="auto")))


@pytest.mark.parametrize("name", CAPTURABLE)
def test_optimisers_that_a_graph_can_hold_count_steps_on_the_device(name: str) -> None:
    weight = torch.nn.Parameter(torch.ones(2, device="meta"))
    (group,) = make_optimizer(OptimizerConfig(name), [weight]).param_groups
    # `capturable` is for weights on a GPU alone; SGD counts none.
    assert group.get("capturable", False) is False
    assert ("capturable" in group) == (name != "SGD")


def test_memory_that_nothing_was_written_to_is_not_filled(tiny: Tiny, tmp_path: Path) -> None:
    torch.utils.deterministic.fill_uninitialized_memory = True
    set_up_process(tiny.config(tmp_path))
    assert not torch.utils.deterministic.fill_uninitialized_memory


def test_a_run_of_a_gpu_goes_on_on_a_cpu(tiny: Tiny, tmp_path: Path) -> None:
    directory = tiny.train(tmp_path, "trainer.epochs=1").directory
    content = torch.load(directory.last, weights_only=True)
    (group,) = content["optimizer_states"][0]["param_groups"]
    assert group["capturable"] is False
    group["capturable"] = True  # as on a GPU
    torch.save(content, directory.last)
    assert len(history(tiny.train(tmp_path, "trainer.epochs=2").directory)) == 2
