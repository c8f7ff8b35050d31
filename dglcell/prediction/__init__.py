"""Predictions of tables and of designs by finished runs."""
