"""Suites: experiments, each with several models and seeds, whose scores make one table."""
