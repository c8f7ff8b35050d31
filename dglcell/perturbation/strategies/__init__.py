"""The strategies: ways to aggregate over the perturbed graphs, equal to each other."""
