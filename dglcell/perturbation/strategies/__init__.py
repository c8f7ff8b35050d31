"""Provide the strategies: ways to aggregate over the perturbed graphs that give equal results."""
