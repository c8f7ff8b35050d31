"""Run experiments as jobs of SLURM: write their scripts, submit them, and report the state of jobs."""
