#!/usr/bin/env bash
#SBATCH --job-name=longmem
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=longmem-%j.log
#
# A suite on several nodes: one Ray cluster over all of them, the sweep on the first.
#
#     .venv/bin/python run.py models fetch rl-memagent-7b    # on a node with network
#     sbatch --nodes=2 deploy/slurm.sh memagent_table2 --models rl-memagent-7b --data DATA
#
# Submit it from the repository, which all nodes must see at the same path, as must HF_HOME (the
# weights). A job that is requeued, or submitted again, goes on where it was. Give --out a folder
# that only one node writes to: a run's store is SQLite, and the first node alone opens it.
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?not under Slurm: submit it with sbatch}"

[ $# -gt 0 ] || { echo "usage: sbatch deploy/slurm.sh SUITE [flags of run.py sweep]" >&2; exit 2; }
. .venv/bin/activate

nodes=${SLURM_JOB_NUM_NODES:?}
mapfile -t hosts < <(scontrol show hostnames "${SLURM_JOB_NODELIST:?}")
head=${hosts[0]:?scontrol names no host}
port=$((20000 + SLURM_JOB_ID % 10000))  # two jobs may share a node's network
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_USAGE_STATS_ENABLED=0 HF_HUB_OFFLINE=${HF_HUB_OFFLINE:-1}
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # replicas on the other nodes import serving/

python run.py plan "$@"
srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 \
    ray symmetric-run --address "$head:$port" --min-nodes "$nodes" --disable-usage-stats -- \
    python run.py sweep "$@" --ray-address "$head:$port"
