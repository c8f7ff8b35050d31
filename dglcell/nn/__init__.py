"""Layers, written once for every strategy."""
