"""Predict tables and designs with finished runs."""
