"""Several processes of one run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from dglcell.config.experiment import TrainerConfig
from dglcell.errors import ConfigError
from dglcell.training.distributed import check_allocation, collect_rows, leave_group

STEP = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "one", "SLURM_STEP_NUM_TASKS": "4"}


def test_a_fitting_job_passes() -> None:
    check_allocation(TrainerConfig(devices=2, num_nodes=2), STEP | {"SLURM_NNODES": "2", "SLURM_NTASKS": "4"})
    check_allocation(TrainerConfig(), {"SLURM_JOB_ID": "7", "SLURM_NNODES": "1", "SLURM_NTASKS": "1"})


def test_outside_slurm_and_in_its_shells_there_is_nothing_to_compare() -> None:
    check_allocation(TrainerConfig(devices=8), {})
    shell = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "interactive", "SLURM_NTASKS": "1"}
    check_allocation(TrainerConfig(devices=8), shell)


@pytest.mark.parametrize(("nodes", "tasks"), [(1, 4), (2, 8), (2, 1)])
def test_other_numbers_are_refused_with_both(nodes: int, tasks: int) -> None:
    environment = STEP | {"SLURM_NNODES": str(nodes), "SLURM_NTASKS": str(tasks)}
    with pytest.raises(ConfigError) as error:
        check_allocation(TrainerConfig(devices=2, num_nodes=2), environment)
    assert f"got:      {tasks} tasks on {nodes} nodes from SLURM" in str(error.value)
    assert "expected: 4 tasks on 2 nodes: `trainer.devices: 2`, `trainer.num_nodes: 2`" in str(error.value)


def test_a_script_without_srun_is_refused() -> None:
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "one", "SLURM_NNODES": "1", "SLURM_NTASKS": "2"}
    with pytest.raises(ConfigError, match="starts one process where the experiment needs several"):
        check_allocation(TrainerConfig(devices=2), environment)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs here")
@pytest.mark.parametrize(("accelerator", "given"), [("auto", "4"), ("gpu", "4"), ("gpu", "")])
def test_a_job_never_trains_on_cpus_because_torch_sees_no_gpu(accelerator: str, given: str) -> None:
    environment = STEP | {"SLURM_NNODES": "1", "SLURM_NTASKS": "4"} | ({"SLURM_GPUS_ON_NODE": given} if given else {})
    with pytest.raises(ConfigError) as error:
        check_allocation(TrainerConfig(devices=4, accelerator=accelerator), environment)
    assert f"got:      {given or 0} GPUs on this node from SLURM, 0 that torch sees" in str(error.value)
    assert "expected: 4 GPUs: `trainer.devices: 4`" in str(error.value)
    check_allocation(TrainerConfig(devices=4, accelerator="cpu"), environment)


SIZES = (3, 0, 2)


def gather_in_group(rank: int, folder: str) -> None:
    """One process: gathers its rows and saves what it sees."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=len(SIZES))
    rows = torch.arange(SIZES[rank] * 2.0).view(-1, 2) + 100 * rank
    torch.save(collect_rows(rows), f"{folder}/{rank}.pt")
    leave_group()
    assert not dist.is_initialized()


@pytest.mark.slow
def test_ranks_with_different_numbers_of_rows_see_all_of_them(tmp_path: Path) -> None:
    mp.spawn(gather_in_group, (str(tmp_path),), nprocs=len(SIZES))
    expected = torch.tensor([[0.0, 1], [2, 3], [4, 5], [200, 201], [202, 203]])
    for rank in range(len(SIZES)):
        assert torch.equal(torch.load(tmp_path / f"{rank}.pt"), expected)


def test_a_single_process_gets_its_own_rows() -> None:
    rows = torch.ones(3, 2)
    assert collect_rows(rows) is rows
    leave_group()
