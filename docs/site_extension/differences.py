"""What experiments 005 and 006 do otherwise than those of the original system, and why."""

from __future__ import annotations

from dglcell.config.experiment import Config
from site_extension.markdown import table

Row = tuple[str, str, str]
"""The original, this experiment, why."""

HEADER = ("the original", "here", "why")
NONE = "The original system has no such experiment.\n"
CONTINUES = "The original system has no such experiment; it continues the series of 081. Against 081:\n"

ALL: list[Row] = [
    (
        "one random split by position (seed 42), in which query pairs occur in all parts",
        "the same shares (80/10/10) and strata, but parts are drawn by a hash of gene names: other strains are test",
        "a split must not depend on the order of strains. The original's own parts can be given as a file: "
        "`split.kind=file`. Query pairs still occur in all parts; `split.kind=pair_disjoint` is the stricter question",
    ),
    (
        "the best validation score is the result; the test part was never evaluated",
        "the test part is evaluated once, with the checkpoint that validation chose; baselines beside it",
        "the best of many validation scores is too high; baselines say for how much of a score no graph is needed",
    ),
    (
        "no seed but the split's",
        "`seed` for weights and order of strains, `trainer.deterministic: true`",
        "so that a run can be repeated",
    ),
    (
        "each undirected pair of a network stored once, in an arbitrary direction",
        "stored in both directions; `cell.symmetrise=false` gives the original's graphs",
        "messages of undirected networks pass both ways",
    ),
]

SGD: list[Row] = [
    (
        "SGD's tables of that day",
        "SGD's tables as they are when they are fetched; their hash is recorded with the run",
        "SGD rewrites them weekly and keeps no versions",
    )
]

HETERO: list[Row] = [
    ("label statistics of all strains", "of the training part", "test labels must not reach training"),
    (
        "layer norm over all rows of a batch at once, deleted genes and batch mates included",
        "layer norm of each node",
        "a strain's prediction must not depend on the other strains of its batch",
    ),
    (
        "the difference of pooled states as it is",
        "multiplied by the number of genes",
        "three deleted genes hardly move a mean over 6,607, which trains badly",
    ),
    (
        "the distance between distributions by Sinkhorn iterations, and without gradient on several devices, so that "
        "only the squared error trained the model",
        "exact, by sorting; strains of all devices are compared, with gradient",
        "the loss is the one that is written down",
    ),
    (
        "products of all states in bfloat16 (`bf16-mixed`)",
        "`trainer.precision: bf16`: products of what strains differ by in bfloat16, all else in float32",
        "rounding of whole states is larger than what a deletion changes of their mean",
    ),
    (
        "metabolism built and sent to the device in every step, and never read",
        "`model.metabolism: false`",
        "the same function; experiments 090 and 091 make it live",
    ),
    (
        "the whole edge list replicated for every strain of a batch",
        "one resident graph; a batch is integers, three for each strain",
        "the same sums, without the copies",
    ),
]

DANGO: list[Row] = [
    (
        "the plateau schedule was configured and never stepped: the rate stayed at 1e-5",
        "it is stepped with the validation loss",
        "as configured; `scheduler.name=none` gives the original's constant rate",
    ),
    (
        "two forward passes a step, dense adjacencies built anew each time",
        "one pass, no dense adjacency",
        "the same loss",
    ),
]
DANGO_ZERO_WEIGHTS: Row = (
    "absent pairs weigh 1 in all networks: the table of weights knew the names of version 9.1 only",
    "weights by channel, as in 9.1",
    "the names were a slip; `model.zero_weights` sets others",
)
IC: Row = (
    "`ICLoss` with a wrong sign and sort direction in its distribution term",
    "the term as published",
    "the corrected term is the one that its equation says",
)

LOADER = (
    "{what}",
    "no masks: deletions are two row scalings or a few changed rows on the device",
    "what made this experiment differ from its neighbours does not exist here; its batch size is left",
)
OWN: dict[str, list[Row]] = {
    "006-kuzmin-tmi/hetero_065": [(LOADER[0].format(what="masks made in loader workers from incidence"), *LOADER[1:])],
    "006-kuzmin-tmi/hetero_074": [(LOADER[0].format(what="masked edges stored per strain, 8.8 GB"), *LOADER[1:])],
    "006-kuzmin-tmi/hetero_075": [(LOADER[0].format(what="whole masks stored per strain, 855 GB"), *LOADER[1:])],
    "006-kuzmin-tmi/hetero_076": [(LOADER[0].format(what="masked edges stored per strain"), *LOADER[1:])],
    "006-kuzmin-tmi/hetero_081": [(LOADER[0].format(what="masks made on the GPU"), *LOADER[1:])],
    "006-kuzmin-tmi/hetero_082": [
        (LOADER[0].format(what="masks made on the GPU without loops"), *LOADER[1:]),
        (
            "batches that were left over at an epoch's end leaked into the next",
            "an epoch ends with a step",
            "every strain counts once an epoch",
        ),
    ],
    "006-kuzmin-tmi/hetero_086": [
        ("100 steps of a subset of 10,000", "a subset of 3,500, whose training part is 100 steps", "the same steps")
    ],
    "006-kuzmin-tmi/hetero_087": [
        (
            "five ways to prepare a strain's graph in loader workers, k-hop neighbourhoods among them",
            "the strategies, which all compute the same function",
            "a neighbourhood leaves out messages, and so is another function",
        )
    ],
}
NEW: dict[str, str] = {
    "006-kuzmin-tmi/hetero_080_dgl": "080 by DGL's `edge_mask`: the same function.",
    "006-kuzmin-tmi/hetero_081_dgl": "081 by DGL's `edge_subgraph`: the same function.",
    "006-kuzmin-tmi/hetero_090": "metabolism takes part, in both directions, so that a lost enzyme reaches genes.",
    "006-kuzmin-tmi/hetero_091": "metabolism takes part, and no query pair of a test strain occurs in training.",
    "006-kuzmin-tmi/hetero_092": "`difference` alone, where `auto` may mix strategies: the same function.",
    "006-kuzmin-tmi/set_operator_093": "the wild type is encoded once, and deleted genes act on it.",
}
STATED: dict[str, str] = {
    "005-kuzmin2018-tmi/dango_string9_1": "validation Pearson 0.422 at best (91,050 strains, four runs)",
    "005-kuzmin2018-tmi/dango_string11_0": "validation Pearson 0.423 at best (91,050 strains, five runs)",
    "005-kuzmin2018-tmi/dango_string12_0": "validation Pearson 0.421 at best (91,050 strains, ten runs)",
    "005-kuzmin2018-tmi/hetero_ic": "validation Pearson 0.431 to 0.439 at best (91,050 strains)",
    "006-kuzmin-tmi/dango_string9_1": "validation Pearson 0.3664 ± 0.0004 at best (332,313 strains, five runs)",
    "006-kuzmin-tmi/dango_string11_0": "validation Pearson 0.3557 ± 0.0012 at best (332,313 strains, four runs)",
    "006-kuzmin-tmi/dango_string12_0": "validation Pearson 0.3581 ± 0.0010 at best (332,313 strains, five runs)",
    "006-kuzmin-tmi/hetero_065": "0.42 steps of 112 strains a second on four GPUs, masks in workers",
    "006-kuzmin-tmi/hetero_074": "0.24 steps of 112 strains a second on four GPUs",
    "006-kuzmin-tmi/hetero_075": "0.22 steps of 112 strains a second on four GPUs",
    "006-kuzmin-tmi/hetero_080": "about 0.3 steps of 128 strains a second on four GPUs",
    "006-kuzmin-tmi/hetero_081": "validation Pearson about 0.35 for models of this kind",
    "006-kuzmin-tmi/hetero_082": "one hour and 50 minutes an epoch on four GPUs",
}
"""What notes of the original project say; nobody has repeated it here."""


def differences(config: Config) -> str:
    """The section's text."""
    name = config.experiment.name
    if not name.startswith(("005-", "006-")):
        return NONE
    if name in NEW:
        return f"{CONTINUES}\n- {NEW[name]}\n\nWhat 081 does otherwise than the original:\n\n{_rows(config)}"
    stated = f"\nThe original's notes state {STATED[name]}; this was not repeated here.\n" if name in STATED else ""
    return _rows(config) + stated


def _rows(config: Config) -> str:
    own = OWN.get(config.experiment.name, [])
    if config.model.name == "dango":
        networks = set(config.cell.networks)
        fallen = [] if "string9_1" in networks else [DANGO_ZERO_WEIGHTS]
        return table(HEADER, [*own, *fallen, *DANGO, *ALL])
    corrected = [IC] if config.loss.name == "mse_dist_supcr" else []
    return table(HEADER, [*own, *corrected, *HETERO, *ALL, *SGD])
