"""Define the configuration of experiments and read their files."""
