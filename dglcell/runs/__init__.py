"""The directory of a run."""
