"""Experiments as jobs of SLURM: their scripts, and how jobs are."""
