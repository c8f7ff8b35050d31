"""All panels of a run, in the order of its report."""

from __future__ import annotations

from dglcell.plots.agreement import agreement
from dglcell.plots.calibration import calibration_panel
from dglcell.plots.data import ReportData, Subject
from dglcell.plots.deletions import deletions_panel
from dglcell.plots.distributions import distributions_panel
from dglcell.plots.embedding import embedding_panel
from dglcell.plots.learning import learning_panels
from dglcell.plots.models import models_panel
from dglcell.plots.panel import Panel
from dglcell.plots.precision_recall import precision_recall_panel
from dglcell.plots.relations import relation_panels
from dglcell.plots.residuals import residuals
from dglcell.plots.score_bins import score_bins_panel
from dglcell.plots.spread import spread_panels

PARTS = ("test", "validation")


def run_panels(run: ReportData) -> dict[str, list[Panel]]:
    """Section → panels: each part and phenotype, training, embeddings, relations.

    Sections without panels are left out.
    """
    sections: dict[str, list[Panel]] = {}
    for part in PARTS:
        for phenotype in run.phenotypes:
            subject = run.subject(phenotype, part)
            if subject is not None:
                sections[f"{phenotype}: {part} part"] = subject_panels(subject)
                if part == "test":
                    sections[f"{phenotype}: {part} part"].append(models_panel(run.rows, phenotype))
    sections["Training"] = learning_panels(run)
    sections["Embeddings"] = embedding_panels(run) + spread_panels(run)
    sections["Relations"] = relation_panels(run.relation_weights)
    return {name: panels for name, panels in sections.items() if panels}


def subject_panels(subject: Subject) -> list[Panel]:
    """Everything about the predictions of one phenotype on one part; a single empty panel where none is measured."""
    if subject.nothing:
        return [agreement(subject)]
    panels = [
        agreement(subject),
        calibration_panel(subject),
        *residuals(subject),
        distributions_panel(subject),
        score_bins_panel(subject),
        precision_recall_panel(subject),
        deletions_panel(subject),
    ]
    return [panel for panel in panels if panel is not None]


def embedding_panels(run: ReportData) -> list[Panel]:
    """The map, once for each phenotype that colours it."""
    found = run.embedding_map
    subjects = [run.subject(phenotype) for phenotype in run.phenotypes]
    return [] if found is None else [embedding_panel(found, subject) for subject in subjects if subject is not None]
