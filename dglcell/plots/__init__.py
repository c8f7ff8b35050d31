"""Pictures of results; needs the extra ``plot``."""

from dglcell.plots.data import Embedding, Predictions, ReportData, Subject
from dglcell.plots.epoch import epoch_picture
from dglcell.plots.history import History
from dglcell.plots.overview import overview
from dglcell.plots.panel import Panel, write_panel
from dglcell.plots.run_panels import run_panels

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
