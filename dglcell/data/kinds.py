"""Kinds of labels."""

REGRESSION, CLASSIFICATION = "regression", "classification"
