"""Trained models by name."""
