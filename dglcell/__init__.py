"""dglcell: graph neural networks over one cell and its many deletion strains."""

__version__ = "0.1.0"
