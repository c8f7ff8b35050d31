"""Find by timing real steps in which form layers compute on a CPU: compiled or not, in float32 or bfloat16.

Which form is the fastest depends on the processor, the compiler and on how many rows of a batch differ from the wild
type: compiled layers in bfloat16 took from 0.6 to 3.5 times as long as plain float32.
"""

from __future__ import annotations

import itertools
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dglcell.data.strains import Strains
from dglcell.errors import count
from dglcell.files.atomic import canonical_hash, user_cache, write_json
from dglcell.files.untrusted import UnreadableError, read_json
from dglcell.machine.processor import multiplies_bfloat16
from dglcell.perturbation.choose.autotuned import Autotuned
from dglcell.perturbation.execution import compiler_works

log = logging.getLogger("dglcell")

WORTH_COMPILING = 150.0
"""Other forms than the plain one are timed if a run's steps take so many seconds: compiling takes half a minute."""

FASTER = 0.9
"""Another form than the plain one is taken where its steps take at most this part of the time: compiled layers are also
compiled anew for other numbers of rows, which a few timed steps do not show."""

ROUNDS = 3
"""So many steps of each form are timed; the forms take turns."""

WARM_UP = 3
"""So many steps of each form come before: they compile, for several numbers of rows."""


@dataclass(frozen=True)
class Form:
    """Say whether layers are compiled, and in which precision their differences are.

    Attributes:
        compiled: whether ``torch.compile`` joins their operations.
        half: whether differences are in bfloat16.
    """

    compiled: bool
    half: bool

    def __str__(self) -> str:
        return f"{'bfloat16' if self.half else 'float32'}, {'compiled' if self.compiled else 'not compiled'}"

    def of(self, autotuned: Autotuned) -> Autotuned:
        """Return the same choices with layers of this form."""
        return autotuned.for_layers(compiled=self.compiled, half=self.half)


PLAIN = Form(compiled=False, half=False)


def forms_of(precision: str, compiled: str) -> list[Form]:
    """Return the forms that a configuration leaves open on a CPU, the plainest first.

    Whether a compiler works is asked here only where compiled layers are wanted: it takes seconds to find out.

    Args:
        precision: precision as returned by ``plain_precision``. With ``auto``, bfloat16 is tried if the processor
            multiplies it, and only in compiled layers: operator by operator it is slower than float32.
        compiled: value of ``model.compile``: auto, true or false.
    """
    halves = {"auto": [False, True], "bf16": [True]}.get(precision, [False])
    wanted = {"auto": [False, True], "true": [True]}.get(compiled, [False])
    if False not in wanted and not compiler_works("cpu"):
        wanted = [False]
    forms = [Form(c, h) for c, h in itertools.product(wanted, halves)]
    if precision == "auto":
        forms = [form for form in forms if not form.half or (form.compiled and multiplies_bfloat16())]
    return forms


@dataclass(frozen=True)
class Steps:
    """Describe training steps that are repeated for timing and change neither the model nor random numbers.

    Attributes:
        choose: lets the model compute with given choices.
        step: runs forward, loss and backward of a batch.
        batches: batches that are repeated.
        planned: number of steps of the run.
        about: the facts that their times depend on, as plain containers.
    """

    choose: Callable[[Autotuned], None]
    step: Callable[[Strains], None]
    batches: Sequence[Strains]
    planned: int
    about: dict[str, Any]


def choose_form(forms: Sequence[Form], autotuned: Autotuned, steps: Steps) -> tuple[Form, dict[str, float]]:
    """Return the form with the fastest steps, and the seconds of a step in each form where forms were compared.

    The first form is taken if nothing is timed.
    """
    if len(forms) == 1:
        return forms[0], {}
    began = time.perf_counter()
    known = _read(steps, forms) or _time(forms[:1], autotuned, steps, warm_up=1, rounds=1)
    plain = known[str(forms[0])]
    expected = plain * steps.planned
    if expected < WORTH_COMPILING or not compiler_works("cpu"):
        log.info("layers in %s: all steps take %s", forms[0], count(round(expected) or 1, "second"))
        return forms[0], {}
    if len(known) < len(forms):
        log.info("%s of layers are timed, which compiles them: up to a minute", count(len(forms), "form"))
        known = _time(forms, autotuned, steps, WARM_UP, ROUNDS)
        plain = known[str(forms[0])]
        log.info("timed in %.0f s", time.perf_counter() - began)
        _write(steps, forms, known)
    best = min(forms, key=lambda form: known[str(form)])
    if known[str(best)] > FASTER * plain:
        best = forms[0]
    times = "; ".join(f"{form}: {known[str(form)] * 1e3:,.0f} ms" for form in forms)
    log.info("layers in %s (a step in %s)", best, times)
    return best, known


def _time(forms: Sequence[Form], autotuned: Autotuned, steps: Steps, warm_up: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of a step of each form, after some steps that warm up."""
    batches = itertools.cycle(steps.batches)
    for form in forms:
        steps.choose(form.of(autotuned))
        for batch in itertools.islice(batches, warm_up):
            steps.step(batch)
    seconds: dict[str, list[float]] = {str(form): [] for form in forms}
    for _, form in itertools.product(range(rounds), forms):
        steps.choose(form.of(autotuned))
        batch, began = next(batches), time.perf_counter()
        steps.step(batch)
        seconds[str(form)].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in seconds.items()}


def _cached(steps: Steps, forms: Sequence[Form]) -> Path:
    about = {**steps.about, "forms": [asdict(form) for form in forms]}
    return user_cache("autotuned") / f"layers-{canonical_hash(about)[:16]}.json"


def _read(steps: Steps, forms: Sequence[Form]) -> dict[str, float] | None:
    """Return the seconds that an earlier run has measured, or None if there are none that can be used."""
    path = _cached(steps, forms)
    try:
        found = read_json(path)["seconds"] if path.is_file() else {}
        known = {str(form): float(found[str(form)]) for form in forms} if found else None
    except (UnreadableError, KeyError, TypeError, ValueError) as error:
        log.warning("'%s' is of no use, and layers are timed anew: %s", path, error)
        return None
    if known is not None:
        log.info("steps as timed before (%s)", path)
    return known


def _write(steps: Steps, forms: Sequence[Form], seconds: dict[str, float]) -> None:
    try:
        write_json(_cached(steps, forms), {"about": steps.about, "seconds": seconds})
    except OSError as error:
        log.warning("what was measured is not kept for other runs: %s", error)
