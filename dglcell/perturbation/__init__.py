"""The strains' graphs, and the strategies that compute on them."""
