"""Time and memory of one forward and backward pass of a combination of relations alone.

``python -m tests.nn.cross_relation_step pairwise_interaction ours`` prints a line of JSON; a process for each, so that
none inherits the heap of another.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from torch import Tensor

from dglcell.machine.devices import measured_memory
from dglcell.nn.config import CrossRelation
from dglcell.nn.cross_relation import make_mixer
from dglcell.perturbation.states import DifferenceStates, Execution
from tests.nn.naive_cross_relation import NAIVE


def measure(how: str, form: str, shape: tuple[int, int, int, int], repeats: int) -> dict[str, object]:
    """Processor time and bytes of a pass over K states of B strains, all of which differ, that need gradients.

    Args:
        how: the combination.
        form: ``ours`` or ``naive``.
        shape: K, N, B, H.
        repeats: passes; the quickest counts.
    """
    K, N, B, H = shape
    torch.manual_seed(0)
    mixer = make_mixer(CrossRelation(how), K, H)
    assert mixer is not None
    rows = [torch.randn(N, B, H, requires_grad=True) for _ in range(K)]
    upstream = torch.randn(N, B, H)

    def forward() -> Tensor:
        if form == "naive":
            return NAIVE[how](mixer.mix, [x.view(-1, H) for x in rows], "gelu")[0].view(N, B, H)
        states = [DifferenceStates(x[:, 0].detach(), x, None, B, Execution()) for x in rows]
        out = states[0].sum([(mixer, states)])
        assert isinstance(out, DifferenceStates)
        return out.dense()

    def step() -> tuple[float, float]:
        for x in [*rows, *mixer.parameters()]:
            x.grad = None
        start = time.process_time()
        out = forward()
        middle = time.process_time()
        out.backward(upstream)
        return middle - start, time.process_time() - middle

    with measured_memory("cpu") as peak:
        seconds = [step() for _ in range(repeats)]
    forward_seconds, backward_seconds = min(seconds, key=sum)
    return {
        "how": how,
        "form": form,
        "shape": shape,
        "forward_ns_per_row": round(forward_seconds / (N * B) * 1e9),
        "backward_ns_per_row": round(backward_seconds / (N * B) * 1e9),
        "processor_seconds": round(forward_seconds + backward_seconds, 3),
        "peak_bytes": peak.bytes,
        "state_bytes": N * B * H * 4,
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=NAIVE)
    parser.add_argument("form", choices=("ours", "naive"))
    parser.add_argument("--shape", type=int, nargs=4, default=(9, 6607, 28, 64), metavar=("K", "N", "B", "H"))
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.how, arguments.form, tuple(arguments.shape), arguments.repeats)))


if __name__ == "__main__":
    main()
