"""Compare explanations with those of PyTorch Geometric: ``python -m benchmarks.explain_peers OUT RUN TRUTH``.

A network of the width and depth of the run's model is written as users of PyTorch Geometric write it, with ``GINConv``
on a copy of the metabolic graph for every strain, and trained on the validation strains of the run. Its predictions are
explained in three ways by ``torch_geometric.explain``: GNNExplainer, which trains a mask for every strain; and gradient
× input and integrated gradients from states of zero, both of Captum, which PyTorch Geometric calls.

Time and memory are measured in one process, one method after the other, for random pairs of deletions. GNNExplainer
takes few of them, because its time is the same for each. Scores are those of ``benchmarks.explain_fba``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.explain import CaptumExplainer, Explainer, GNNExplainer, ModelConfig
from torch_geometric.nn import GINConv, global_mean_pool

import dglcell
from benchmarks.explain_fba import mean_of_others, summary
from benchmarks.flux_truth import Truth
from benchmarks.store_scale import peak_of_program
from dglcell.explanations.split import check_model
from dglcell.files.atomic import write_json
from dglcell.graph.metabolism import model_reaction
from dglcell.graph.model_files import read_model
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import CONVERTED_BY, CONVERTS, METABOLITE, REACTION
from dglcell.machine.processor import processor_name
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.sent import keep_masks
from dglcell.runs.directory import RunDirectory

STRAINS, FEW = 1000, 10
"""Explanations are timed for so many strains, and those of GNNExplainer for few of them."""

BATCH, EPOCHS, STEPS, POINTS = 128, 5, 100, 16
"""Strains of a batch, epochs of training, steps of GNNExplainer for each strain (as many as it takes by itself), and
points of integrated gradients."""


class Graphs:
    """Make the metabolic graphs of strains: reactions and metabolites, without what a strain lacks."""

    def __init__(self, cell: ResidentCell) -> None:
        self.cell, self.reactions = cell, cell.num_nodes[REACTION]
        self.num_nodes = self.reactions + cell.num_nodes[METABOLITE]
        out, back = cell[CONVERTS], cell[CONVERTED_BY]
        out_ends = torch.stack([out.src, out.dst + self.reactions])
        back_ends = torch.stack([back.src + self.reactions, back.dst])
        self.edges = torch.cat([out_ends, back_ends], 1)

    def __call__(self, strains: Sequence[Sequence[str]], genes: Any) -> list[Data]:
        """Return a graph for each strain; ``node`` numbers its nodes."""
        batch = GenotypeBatch.from_lists([[genes.index(gene) for gene in strain] for strain in strains])
        keep_RB = keep_masks(self.cell, batch)[REACTION]
        found = []
        for keep_R in keep_RB.T:
            keep_N = torch.cat([keep_R, keep_R.new_ones(self.num_nodes - self.reactions)])
            node = keep_N.nonzero().squeeze(1)
            place = keep_N.cumsum(0) - 1
            edges = self.edges[:, keep_N[self.edges].all(0)]
            found.append(Data(edge_index=place[edges], node=node, num_nodes=len(node)))
        return found


class Network(nn.Module):
    """Predict a phenotype of a strain's own graph."""

    def __init__(self, num_nodes: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_nodes, hidden)
        updates = [
            nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, hidden)) for _ in range(layers)
        ]
        self.convs = nn.ModuleList(GINConv(update) for update in updates)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return [B, 1] phenotypes from states of nodes."""
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + norm(conv(x, edge_index))
        out: Tensor = self.head(global_mean_pool(x, batch))
        return out

    def of(self, graphs: Batch) -> Tensor:
        """Return phenotypes of a batch of strains, [B]."""
        return self(self.embedding(graphs.node), graphs.edge_index, graphs.batch).squeeze(1)


def fit(network: Network, graphs: Sequence[Data], labels: Tensor) -> None:
    """Train the network."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(graphs)).split(BATCH):
            batch = Batch.from_data_list([graphs[i] for i in chosen.tolist()])
            loss = (network.of(batch) - labels[chosen]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


# Explanations: node of the graph → score, [strains, nodes].


CONFIG = ModelConfig(mode="regression", task_level="graph", return_type="raw")


def attributions(
    name: str, network: Network, graphs: Sequence[Data], num_nodes: int, **settings: Any
) -> NDArray[np.float64]:
    """Return the absolute attributions of a method of Captum, summed over each node's state, for whole batches."""
    algorithm = CaptumExplainer(name, **settings)
    explainer = Explainer(
        network, algorithm, explanation_type="model", node_mask_type="attributes", model_config=CONFIG
    )
    out = np.zeros((len(graphs), num_nodes))
    for first in range(0, len(graphs), BATCH):
        batch = Batch.from_data_list(list(graphs[first : first + BATCH]))
        x = network.embedding(batch.node).detach()
        found = explainer(x, batch.edge_index, batch=batch.batch).node_mask.sum(1).abs()
        out[first + batch.batch.numpy(), batch.node.numpy()] = found.detach().numpy()
    return out


def gnn_explainer(network: Network, graphs: Sequence[Data], num_nodes: int) -> NDArray[np.float64]:
    """Return masks of nodes that GNNExplainer learns."""
    out = np.zeros((len(graphs), num_nodes))
    for i, graph in enumerate(graphs):
        explainer = Explainer(
            network,
            GNNExplainer(epochs=STEPS),
            explanation_type="model",
            node_mask_type="object",
            edge_mask_type="object",
            model_config=CONFIG,
        )
        x = network.embedding(graph.node).detach()
        out[i, graph.node.numpy()] = explainer(x, graph.edge_index).node_mask.squeeze(1).numpy()
    return out


METHODS: dict[str, Callable[[Network, Sequence[Data], int], NDArray[np.float64]]] = {
    "gradient × input": partial(attributions, "InputXGradient"),
    "integrated gradients": partial(attributions, "IntegratedGradients", n_steps=POINTS, method="gausslegendre"),
    "GNNExplainer": gnn_explainer,
}


# What is measured.


def timed(number: int, call: Callable[[], Any]) -> dict[str, Any]:
    """Return processor seconds and memory for 1,000 strains of a method that takes so many."""
    with peak_of_program() as peak:
        began = time.process_time()
        call()
        seconds = time.process_time() - began
    return {"strains": number, "seconds_per_1000": round(1000 * seconds / number, 3), "megabytes": peak["above"] >> 20}


def times(predictor: dglcell.Predictor, network: Network, graphs: Graphs) -> dict[str, dict[str, Any]]:
    """Measure this package, and the ways of PyTorch Geometric."""
    rng, names = np.random.default_rng(0), predictor.cell.genes.names
    strains = [rng.choice(names, 2, replace=False).tolist() for _ in range(STRAINS)]
    calls: dict[str, tuple[int, Callable[[], Any]]] = {
        "dglcell, prediction": (STRAINS, lambda: predictor.predict(strains)),
        "dglcell, explanation": (STRAINS, lambda: predictor.explain(strains)),
        "dglcell, explanation with edges": (STRAINS, lambda: predictor.explain(strains, edges=True)),
    }
    own, genes = graphs.num_nodes, predictor.cell.genes
    data = graphs(strains, genes)

    def predict() -> None:
        with torch.no_grad():
            for first in range(0, STRAINS, BATCH):
                network.of(Batch.from_data_list(data[first : first + BATCH]))

    calls["PyG, prediction"] = STRAINS, predict
    for name, method in METHODS.items():
        number = FEW if method is gnn_explainer else STRAINS
        calls[f"PyG, {name}"] = number, partial(method, network, data[:number], own)
    for _, call in list(calls.values())[:4]:  # what is computed once is not counted
        call()
    return {name: timed(*about) for name, about in calls.items()}


def scores(
    network: Network, graphs: Graphs, predictor: dglcell.Predictor, truth: Truth, reactions: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return how well masks and gradients tell which fluxes change, by each definition of the truth."""
    data = graphs([strain.split(";") for strain in truth.genotypes], predictor.cell.genes)
    place = {name: i for i, name in enumerate(reactions)}
    columns = [place[model_reaction(name)] for name in predictor.cell.vocabularies[REACTION].names]
    found: dict[str, dict[str, Any]] = {}
    for name, method in METHODS.items():
        of_nodes = method(network, data, graphs.num_nodes)[:, : len(columns)]
        of_reactions = np.zeros((len(data), len(reactions)))
        np.add.at(of_reactions.T, columns, of_nodes.T)
        both = {name: of_reactions, f"{name}, mean of other strains": mean_of_others(of_reactions)}
        found |= {
            title: {
                definition: summary([score], changed, truth.kept)[0] for definition, changed in truth.changed.items()
            }
            for title, score in both.items()
        }
    return found


def main(out: Path, run: Path, path: Path) -> None:
    """Train the network, and measure."""
    torch.manual_seed(0)
    predictor, truth = dglcell.load(run), Truth.read(path)
    [member] = predictor.members
    explained = check_model(member.model)
    graphs, config = Graphs(explained.cell), explained.config
    network = Network(graphs.num_nodes, config.hidden, config.layers)
    directory = RunDirectory(run)
    parts = {part: pd.read_csv(directory.predictions(part)) for part in ("validation", "test")}
    strains = {part: [text.split(";") for text in frame["genes"]] for part, frame in parts.items()}
    labels = {part: torch.tensor(frame["measured_fitness"].to_numpy()).float() for part, frame in parts.items()}
    fit(network, graphs(strains["validation"], predictor.cell.genes), labels["validation"])
    with torch.no_grad():
        predicted = network.of(Batch.from_data_list(graphs(strains["test"], predictor.cell.genes)))
    model = read_model(member.config.cell.model or "")
    write_json(
        out,
        {
            "command": f"python -m benchmarks.explain_peers OUT {Path(*run.parts[-2:])} TRUTH",
            "processor": processor_name(),
            "threads": torch.get_num_threads(),
            "network_pearson": round(float(np.corrcoef(predicted, labels["test"])[0, 1]), 4),
            "times": times(predictor, network, graphs),
            "strains": len(truth.genotypes),
            "scores": scores(network, graphs, predictor, truth, [reaction.id for reaction in model.reactions]),
        },
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
