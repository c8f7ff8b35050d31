"""Draw pictures of results."""

from dglcell.plots.data import Embedding, History, Predictions, ReportData, Subject
from dglcell.plots.pictures import epoch_picture, overview, run_panels
from dglcell.plots.style import Panel, write_panel

__all__ = [
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
