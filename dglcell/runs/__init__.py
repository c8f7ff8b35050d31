"""Manage the directory of a run."""
