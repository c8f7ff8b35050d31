"""Draw pictures of results."""

from dglcell.plots.data import Doses, Embedding, History, Predictions, ReportData, Subject
from dglcell.plots.pictures import epoch_picture, overview, run_panels
from dglcell.plots.style import Panel, write_panel

__all__ = [
    "Doses",
    "Embedding",
    "History",
    "Panel",
    "Predictions",
    "ReportData",
    "Subject",
    "epoch_picture",
    "overview",
    "run_panels",
    "write_panel",
]
