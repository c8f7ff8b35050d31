"""Configurations: files that are none, and values that no key should take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest

from dglcell.config.experiment import KINDS, Config
from tests.hostile.inputs import EXPERIMENT, MINIMAL, Input, cases, keys_of

VALIDATE = ("config", "validate", EXPERIMENT)

DEEP = 5_000

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
"""Ten thousand million strings, once every alias is replaced by what it stands for."""

FILES: dict[str, tuple[str | bytes, str]] = {
    "empty": (b"", "`cell`"),
    "one number": ("3\n", EXPERIMENT),
    "a list": ("- a\n- b\n", EXPERIMENT),
    "a string": ("hello\n", EXPERIMENT),
    "nul": ("cell: {model: 'text\0book'}\n", EXPERIMENT),
    "an escaped nul": ('cell: {model: "text\\0book"}\n', "`cell.model`"),
    "escape": ("cell: {model: 'text\x1b[31mbook'}\n", EXPERIMENT),
    "not utf-8": (b"cell: {model: \xff\xfe}\n", EXPERIMENT),
    "utf-16": ("cell: {model: textbook}\n".encode("utf-16"), EXPERIMENT),
    "latin-1": ("experiment: {name: Müller}\n".encode("latin-1"), EXPERIMENT),
    "binary": (bytes(range(256)), EXPERIMENT),
    "an elf header": (b"\x7fELF\x02\x01\x01" + bytes(50), EXPERIMENT),
    "open bracket": ("cell: [\n", EXPERIMENT),
    "open quote": ("cell: 'text\n", EXPERIMENT),
    "tab": ("cell:\n\tmodel: textbook\n", EXPERIMENT),
    "same key twice": ("seed: 1\nseed: 2\n", "seed"),
    "same key twice below": ("cell: {model: textbook, model: iJO1366}\n", "model"),
    "python object": ("cell: !!python/object/apply:os.system ['touch x']\n", EXPERIMENT),
    "python name": ("seed: !!python/name:os.system\n", EXPERIMENT),
    "unknown tag": ("seed: !mine 3\n", EXPERIMENT),
    "two documents": (MINIMAL + "---\n" + MINIMAL, EXPERIMENT),
    "unknown alias": ("cell: *nothing\n", EXPERIMENT),
    "alias to itself": ("cell: &a {model: *a}\n", EXPERIMENT),
    "list in itself": ("experiment: {tags: &a [*a]}\n", EXPERIMENT),
    "alias bomb": (BOMB, EXPERIMENT),
    "alias bomb below": ("x: {" + ", ".join(BOMB.splitlines()) + "}\n", EXPERIMENT),
    "merge bomb": (
        "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{b: *a{n - 1}, c: *a{n - 1}}}\n" for n in range(1, 40)),
        EXPERIMENT,
    ),
    "deep lists": ("cell: " + "[" * DEEP + "]" * DEEP + "\n", EXPERIMENT),
    "deep mappings": ("{a: " * DEEP + "1" + "}" * DEEP + "\n", EXPERIMENT),
    "deep blocks": ("".join(" " * n + f"a{n}:\n" for n in range(1_500)) + " " * 1_500 + "b: 1\n", EXPERIMENT),
    "deep dashes": ("cell: \n  " + "- " * DEEP + "1\n", EXPERIMENT),
    "unclosed deep lists": ("cell: " + "[" * DEEP + "\n", EXPERIMENT),
    "number of ten thousand digits": ("seed: " + "9" * 10_000 + "\n", EXPERIMENT),
    "list as a key": ("? [a, b]\n: 1\n", EXPERIMENT),
    "mapping as a key": ("? {a: b}\n: 1\n", EXPERIMENT),
    "null as a key": ("~: 1\n", EXPERIMENT),
    "number as a key": ("5: 1\n", "5"),
    "truth as a key": ("true: 1\n", "True"),
    "date": ("seed: 2024-01-01\n", "seed"),
    "interpolation of nothing": ("seed: ${nowhere}\n", "seed"),
    "interpolation of itself": ("experiment: {name: '${experiment.name}'}\n", "experiment"),
    "interpolation in a circle": (
        "experiment: {name: '${seed}', description: '${experiment.description}'}\n",
        "experiment",
    ),
    "open interpolation": ("experiment: {name: '${'}\n", "experiment"),
    "unknown resolver": ("experiment: {name: '${mine:x}'}\n", "experiment.name"),
    "variable that is not set": ("experiment: {name: '${oc.env:DGLCELL_NOT_SET}'}\n", "experiment.name"),
    "deep interpolation": ("experiment: {name: '" + "${a:" * 2_000 + "}" * 2_000 + "'}\n", EXPERIMENT),
    "mandatory value": (MINIMAL + "seed: ???\n", "seed"),
    "extends a number": ("extends: 5\n", "extends"),
    "extends nothing there": ("extends: nowhere.yaml\n", "nowhere.yaml"),
    "extends itself": (f"extends: {EXPERIMENT}\n", "circle"),
    "extends a folder": ("extends: .\n", "not found"),
    "extends a long name": (f"extends: {'x' * 300}.yaml\n", "xxx"),
    "extends a nul": ('extends: "a\\0b"\n', "extends"),
    "extends a mapping": ("extends: {a: b}\n", "extends"),
    "extends a list of lists": ("extends: [[a]]\n", "extends"),
    "extends a device": ("extends: /dev/zero\n", "/dev/zero"),
    "extends an interpolation": ("extends: ${nowhere}\n", "extends"),
    "unknown section": (MINIMAL + "modle: {hidden: 3}\n", "did you mean `model`"),
    "unknown key": (MINIMAL + "trainer: {epoch: 3}\n", "did you mean `trainer.epochs`"),
    "a section that is a list": ("cell: [1, 2]\n", "`cell`"),
    "a section that is null": (MINIMAL + "trainer: null\n", "`trainer`"),
    "a section that is a number": (MINIMAL + "trainer: 3\n", "`trainer`"),
    "networks that are a list": ("cell: {networks: [a]}\n", "`cell.networks`"),
    "a network that is a number": ("cell: {networks: {a: 3}}\n", "cell.networks.a"),
    "union parts that are numbers": (MINIMAL + "data: {source: {name: union, union: {parts: [1, 2]}}}\n", "parts"),
    "a model that is a list": (MINIMAL + "model: [hetero_cell]\n", "`model"),
    "a model's name that is a list": (MINIMAL + "model: {name: [hetero_cell]}\n", "`model.name`"),
    "a model's name that is a mapping": (MINIMAL + "model: {name: {a: b}}\n", "`model.name`"),
    "a loss's name that is null": (MINIMAL + "loss: {name: null}\n", "`loss.name`"),
}


def files() -> Iterator[Input]:
    """Yield configuration files."""
    for name, (content, says) in FILES.items():
        yield Input(name, VALIDATE, says, {EXPERIMENT: content})


OVERRIDES: list[tuple[str, str]] = [
    # (override, what the message names)
    ("seed", "seed"),
    ("=3", "=3"),
    ("model..hidden=3", "model..hidden"),
    (".=1", ".=1"),
    ("a." * 3_000 + "b=1", "override"),
    ("data.phenotypes=" + "[" * 3_000 + "]" * 3_000, "data.phenotypes"),
    ("data.phenotypes=[a", "data.phenotypes"),
    ("data.phenotypes=&a [*a]", "data.phenotypes"),
    ("experiment.name=!!python/object/apply:os.system [touch x]", "experiment.name"),
    ("seed[0]=1", "seed"),
    ("data.phenotypes[0]=x", "data.phenotypes"),
    ("=", "key=value"),
    ("seed=" + "9" * 10_000, "seed"),
    ("seed=-1", "`seed`"),
    ("seed=[1]", "`seed`"),
    ("seed={a: 1}", "`seed`"),
    ("split.seed=-1", "`split.seed`"),
    ("data.source.insilico.seed=-3", "`data.source.insilico.seed`"),
    ("data.source.insilico.pairs=²", "`data.source.insilico.pairs`"),
    ("optimizer.lr=1e999", "`optimizer.lr`"),
    ("trainer.epochs=18446744073709551616", "`trainer.epochs`"),
    ("trainer.timeout=99999999999999999", "`trainer.timeout`"),
    ("trainer.threads=99999999999", "`trainer.threads`"),
    ("data.source.insilico.time_limit=1e300", "`data.source.insilico.time_limit`"),
    ("tracking.wandb=sometimes", "`tracking.wandb`"),
    ("cell.unknown=perhaps", "`cell.unknown`"),
    ("optimizer.lr=0", "`optimizer.lr`"),
    ("optimizer.lr=null", "`optimizer.lr`"),
    ("optimizer.weight_decay=-1", "optimizer.weight_decay"),
    ("optimizer.options={betas: [.nan, 0.9]}", "`optimizer.options.betas[0]`"),
    ("optimizer.options={eps: .inf}", "`optimizer.options.eps`"),
    ("optimizer.options={betas: 3}", "optimizer"),
    ("optimizer.options={betas: [0.9]}", "optimizer"),
    ("optimizer.options={params: 3}", "optimizer"),
    ("optimizer.options={lr: .nan}", "`optimizer.options.lr`"),
    ("optimizer.options={'a b': 3}", "optimizer"),
    ("optimizer.options={1: 3}", "optimizer"),
    ("optimizer.options={eps: text}", "optimizer"),
    ("optimizer.name=__class__", "`optimizer.name`"),
    ("optimizer.name=Optimizer", "`optimizer.name`"),
    ("optimizer.name=LBFGS", "optimizer"),
    ("scheduler.first_cycle=0", "`scheduler.first_cycle`"),
    ("trainer.gradient_clip_val=-1", "`trainer.gradient_clip_val`"),
    ("trainer.epochs=0", "`trainer.epochs`"),
    ("trainer.patience=0", "`trainer.patience`"),
    ("trainer.accumulate_grad_batches={-1: 2}", "`trainer.accumulate_grad_batches`"),
    ("trainer.accumulate_grad_batches={0: 0}", "`trainer.accumulate_grad_batches`"),
    ("trainer.accumulate_grad_batches={0: true}", "`trainer.accumulate_grad_batches"),
    ("trainer.accumulate_grad_batches={a: 1}", "`trainer.accumulate_grad_batches"),
    ("trainer.accumulate_grad_batches={0: 99999999999999999999}", "`trainer.accumulate_grad_batches"),
    ("trainer.precision=16", "`trainer.precision`"),
    ("trainer.checkpoint=../../etc/passwd", "`trainer.checkpoint`"),
    ("data.batch_size=0", "`data.batch_size`"),
    ("data.batch_size=[1]", "`data.batch_size`"),
    ("data.eval_batch_size=-1", "`data.eval_batch_size`"),
    ("data.phenotypes=[]", "`data.phenotypes`"),
    ("data.phenotypes=['']", "`data.phenotypes"),
    ("data.phenotypes=[fitness, fitness]", "`data.phenotypes`"),
    ("data.phenotypes=fitness", "`data.phenotypes`"),
    ("data.phenotypes=[[fitness]]", "`data.phenotypes"),
    ('data.phenotypes=["a\\nb"]', "`data.phenotypes[0]`"),
    ("data.normalise=null", "`data.normalise`"),
    ("data.streaming={window: 0}", "unknown key `data.streaming`"),
    ("split.fractions=[]", "`split.fractions`"),
    ("split.fractions=[.nan, 0.5, 0.5]", "`split.fractions"),
    ("split.fractions=[.inf, -.inf, 1]", "`split.fractions"),
    ("split.fractions=[1, 0, 0]", "`split.fractions`"),
    ("split.fractions=[0.5, 0.5]", "`split.fractions`"),
    ("split.fractions=[true, 0.1, 0.1]", "`split.fractions"),
    ("split.folds=3", "`split.folds`"),
    ("split={folds: 3, fold: -1}", "`split.fold`"),
    ("split={folds: 99999999999999999999, fold: 0}", "`split.folds`"),
    ("split.kind=file", "`split.path`"),
    ("split.subset={size: -5}", "`split.subset.size`"),
    ("split={kind: gene_split_1, test_genes: 0}", "`split.test_genes`"),
    ("model.hidden=0", "`model.hidden`"),
    ("model.dropout=1", "`model.dropout`"),
    ("model={conv: gatv2, conv_heads: 0}", "`model.conv_heads`"),
    ("model.pool=[gene, gene]", "`model.pool`"),
    ("model.pool=[]", "`model.pool`"),
    ("model.pool=[gene, planet]", "`model.pool`"),
    ("model.relations=[]", "`model.relations`"),
    ("model.relations=[a, a]", "`model.relations`"),
    ("model.features={gene: []}", "`model.features.gene`"),
    ("model.name=[]", "`model.name`"),
    ("model=dango", "dango"),
    ("model={name: dango, zero_weights: {a: .nan}}", "`model.zero_weights.a`"),
    ("model={name: dango, heads: 0}", "`model.heads`"),
    ("loss={name: mse, phenotype_weights: []}", "`loss.phenotype_weights`"),
    ("loss={name: mse, phenotype_weights: [.nan]}", "`loss.phenotype_weights"),
    ("loss={name: mse, phenotype_weights: [-1]}", "`loss.phenotype_weights`"),
    ("loss.name=mse\0", "loss"),
    ("cell.derived=[isoenzyme, isoenzyme]", "`cell.derived`"),
    ("cell.derived=[nothing]", "`cell.derived`"),
    ("cell.currency=[a, a]", "`cell.currency`"),
    ("cell.currency_degree=0", "`cell.currency_degree`"),
    ("cell.similarity={power: .nan}", "`cell.similarity.power`"),
    ("cell.similarity={damping: .inf}", "`cell.similarity.damping`"),
    ("cell.similarity={neighbours: 99999999999999999999}", "`cell.similarity.neighbours`"),
    ("cell.networks={a: {path: x, columns: []}}", "`cell.networks.a.columns`"),
    ("cell.networks={a: {path: x, columns: [b, b]}}", "`cell.networks.a.columns`"),
    ("cell.networks={a: {path: x, columns: [b, c], weight: w, min_weight: .nan}}", "`cell.networks.a.min_weight`"),
    ("cell.networks={a: {path: x, columns: [b, c], channels: [d, d]}}", "`cell.networks.a.channels`"),
    ("cell.networks={a: {path: x, columns: [b, c], sha256: xyz}}", "`cell.networks.a.sha256`"),
    ("cell.networks={train: {path: x, columns: [b, c]}}", "train"),
    ("cell.networks={'../up': {path: x, columns: [b, c]}}", "../up"),
    ("cell.networks={a: {path: ''}}", "`cell.networks.a.path`"),
    ("cell.networks={a: {source: nothing}}", "`cell.networks.a.source`"),
    ("data.source={name: csv, csv: {path: x, genes: [], phenotypes: {f: f}}}", "`data.source.csv.genes`"),
    ("data.source={name: csv, csv: {path: x, genes: [g, g], phenotypes: {f: f}}}", "`data.source.csv.genes`"),
    ("data.source={name: csv, csv: {path: x, genes: [g], phenotypes: {}}}", "`data.source.csv.phenotypes`"),
    ("data.source={name: csv, csv: {path: x, genes: [g], phenotypes: {'': f}}}", "data.source.csv.phenotypes"),
    ("data.source={name: csv, csv: {path: x, genes: [g], phenotypes: {f: f}, conflicts: {p: .nan}}}", "conflicts.p`"),
    (
        "data.source={name: csv, csv: {path: x, genes: [g], phenotypes: {f: f}, conflicts: {difference: .inf}}}",
        "conflicts.difference`",
    ),
    ("data.source={name: csv, csv: {path: x, genes: [g], phenotypes: {f: f}, separator: ab}}", "separator`"),
    ("data.source={name: union, union: {parts: []}}", "`data.source.union.parts`"),
    ("data.source={name: kuzmin2018, laboratory: {conflicts: {p: .nan}}}", "`data.source.laboratory.conflicts.p`"),
    ("data.source={name: kuzmin2018, laboratory: {temperature: true}}", "`data.source.laboratory.temperature`"),
    ("data.source.name=../x", "data source"),
    ("experiment.name=../../outside", "`experiment.name`"),
    ("experiment.name=/etc", "`experiment.name`"),
    ('experiment.name="a\\u2028b"', "`experiment.name`"),
    ('experiment.name="a\\ud800b"', "`experiment.name`"),
    ("experiment.name=" + "x" * 300, "`experiment.name`"),
    ("experiment.name=" + "ü" * 200, "`experiment.name`"),
    ("experiment.name=.", "`experiment.name`"),
    ("experiment.tags=[a, a]", "`experiment.tags`"),
    ("paths.runs=", "`paths.runs`"),
    ("paths.data=''", "`paths.data`"),
    ("tracking={wandb: offline, project: 'a/b'}", "`tracking.project`"),
    ("tracking={wandb: offline, project: ''}", "`tracking.project`"),
    ("tracking={wandb: online, project: " + "x" * 200 + "}", "`tracking.project`"),
    ("tracking={wandb: offline, group: " + "x" * 200 + "}", "`tracking.group`"),
    ("tracking={wandb: offline, entity: 'a\\b'}", "`tracking.entity`"),
    ("plot_every=-1", "`plot_every`"),
    ("plot_points=0", "`plot_points`"),
    ("slurm.cpus_per_task=0", "`slurm.cpus_per_task`"),
    ("slurm.warning=1", "`slurm.warning`"),
    ("slurm.time=soon", "`slurm.time`"),
    ("slurm.time=٣٤", "`slurm.time`"),
    ("slurm.memory=much", "`slurm.memory`"),
    ("slurm.environment={'A B': c}", "`slurm.environment`"),
    ("slurm.environment={'A=$(x)': c}", "`slurm.environment`"),
    ("slurm.options=[touch x]", "`slurm.options`"),
    ("slurm.binds=[/a]", "`slurm.binds`"),
    ('slurm={container: x, container_command: "it\'s"}', "`slurm.container_command`"),
    *((f'slurm.{key}=["--a\\n#SBATCH --wrap=x"]', f"`slurm.{key}[0]`") for key in ("modules", "setup", "options")),
    ('slurm={container: x, binds: ["a\\nb"]}', "`slurm.binds[0]`"),
    ('slurm.environment={A: "b\\nc"}', "`slurm.environment.A`"),
    ('slurm.environment={"A\\nB": c}', "slurm.environment"),
]


REFUSED_EVERYWHERE = {
    str: ('"a\\0b"', '"a\\ntouch pwned"'),
    float: (".nan", "-.inf"),
    int: ("99999999999999999999", "true"),
    bool: ("maybe",),
}
"""Type of a key → values that no key of that type takes. A key of several types is taken for the first of them."""

MORE_LINES = "experiment.description"
"""This text may have several lines."""


def types_of(hint: Any) -> set[type]:
    """Return those of the four types that a value may have."""
    inside = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    if get_origin(hint) in (Annotated, Union, UnionType):
        return set().union(*map(types_of, inside))
    return {hint} & REFUSED_EVERYWHERE.keys()


def every_key(which: slice) -> Iterator[Input]:
    """Yield overrides of every key, with some of the values that its type has and the key cannot take."""
    found: dict[str, tuple[Any, tuple[str, ...]]] = {key: (hint, ()) for key, hint in keys_of(Config, parts=False)}
    for section, kinds in KINDS.items():
        for name, kind in kinds.items():
            below = keys_of(kind, f"{section}.", parts=False)
            found |= {key: (hint, (f"{section}.name={name}",)) for key, hint in below}
    for key, (hint, more) in found.items():
        types = types_of(hint)
        for value in next((values[which] for kind, values in REFUSED_EVERYWHERE.items() if kind in types), ()):
            if not key.endswith(".name") and not (key == MORE_LINES and "\\n" in value):
                yield Input(f"{key}={value}", (*VALIDATE, *more, f"{key}={value}"), key, {EXPERIMENT: MINIMAL})


def overrides() -> Iterator[Input]:
    """Yield overrides of a valid file."""
    for number, (override, says) in enumerate(OVERRIDES):
        yield Input(f"{number}-{override[:40]!a}", (*VALIDATE, override), says, {EXPERIMENT: MINIMAL})


@cases(files())
def test_files(hostile: Input, driven: Callable[[Input], None]) -> None:
    driven(hostile)


@cases(every_key(slice(1)))
def test_no_key_takes_what_its_type_cannot_mean(hostile: Input, driven: Callable[[Input], None]) -> None:
    driven(hostile)


@pytest.mark.slow
@cases(every_key(slice(1, None)))
def test_no_key_takes_other_values_that_its_type_cannot_mean(hostile: Input, driven: Callable[[Input], None]) -> None:
    driven(hostile)


@cases(overrides())
def test_overrides(hostile: Input, driven: Callable[[Input], None]) -> None:
    driven(hostile)
