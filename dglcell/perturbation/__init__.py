"""Define the strains' graphs, and the strategies that compute on them."""

STRATEGIES = ("edge_subgraph", "edge_mask", "node_mask", "difference")
"""The strains' graphs can be expressed in these ways, of which ``auto`` takes one. See
``dglcell.perturbation.perturb``."""

DGL_STRATEGIES = ("edge_subgraph", "edge_mask")
"""These strategies leave products to DGL, whose build must support the device."""
