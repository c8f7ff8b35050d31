#!/bin/bash
# Kuzmin 2020 pilot, tau of four query pairs, set operator with a factorisation head, random split
# Rendered by `dglcell job render conf/104-kuzmin2020-pilot/set_operator_random.yaml`: edit the `slurm` section of the experiment, not this script.
# Submit it from the folder that this path starts in, with `dglcell job submit`, or after `mkdir -p slurm` with sbatch.
# It runs in the environment of the shell that submits it, which has to be active there; or say in `slurm.setup` how to
# activate it, e.g. slurm.setup='[source .venv/bin/activate]'.
#SBATCH --job-name=104-kuzmin2020-pilot.set_operator_random
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=32G
#SBATCH --time=24:00:00
#SBATCH --output=slurm/%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=USR1@120

set -euo pipefail

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}

srun --cpus-per-task=${SLURM_CPUS_PER_TASK:-1} --kill-on-bad-exit=1 dglcell train conf/104-kuzmin2020-pilot/set_operator_random.yaml
