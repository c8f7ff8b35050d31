#!/bin/bash
# Heterograph model 080 by DGL, masked weights of edges
# Rendered by `dglcell job render conf/006-kuzmin-tmi/hetero_080_dgl.yaml`: edit the `slurm` section of the experiment, not this script.
# Submit it from the folder that this path starts in, with `dglcell job submit`, or after `mkdir -p slurm` with sbatch.
#SBATCH --job-name=006-kuzmin-tmi.hetero_080_dgl
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --mem=64G
#SBATCH --time=2-00:00:00
#SBATCH --output=slurm/%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=USR1@120

set -euo pipefail

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}

srun --cpus-per-task=${SLURM_CPUS_PER_TASK:-1} --kill-on-bad-exit=1 apptainer exec --nv dglcell-dgl.sif dglcell train conf/006-kuzmin-tmi/hetero_080_dgl.yaml
