"""Strains: sources, stores, data sets, splits and batches."""
