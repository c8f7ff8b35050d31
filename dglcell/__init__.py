"""dglcell: graph neural networks over one cell and its many deletion strains."""

import os

__version__ = "0.2.0"

# Else DGL's first import on a machine writes a file into the user's home and says so.
os.environ["DGLBACKEND"] = "pytorch"
