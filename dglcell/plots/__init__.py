"""Pictures of results; needs the extra ``plot``."""

from dglcell.plots.report import EpochRecord, Predictions, ReportData, report_figure

__all__ = ["EpochRecord", "Predictions", "ReportData", "report_figure"]
