#!/bin/bash
# Collins 2007 E-MAP over the yeast cell graph, gene-disjoint split of 8,000 pairs
# Rendered by `dglcell job render conf/101-collins2007/gene_disjoint_8000.yaml`: edit the `slurm` section of the experiment, not this script.
# Submit it from the folder that this path starts in, with `dglcell job submit`, or after `mkdir -p slurm` with sbatch.
# It runs in the environment of the shell that submits it, which has to be active there; or say in `slurm.setup` how to
# activate it, e.g. slurm.setup='[source .venv/bin/activate]'.
#SBATCH --job-name=101-collins2007.gene_disjoint_8000
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

srun --cpus-per-task=${SLURM_CPUS_PER_TASK:-1} --kill-on-bad-exit=1 dglcell train conf/101-collins2007/gene_disjoint_8000.yaml
