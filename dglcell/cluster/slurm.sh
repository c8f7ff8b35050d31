#!/bin/bash
# @description
# Rendered by `dglcell job render @file`: edit the `slurm` section of the experiment, not this script.
# Submit it from the folder that this path starts in, with `dglcell job submit`, or after `mkdir -p @logs` with sbatch.
@environment@directives
set -euo pipefail

@surroundings
@command
