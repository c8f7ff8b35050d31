"""Define layers, written once for every strategy."""
