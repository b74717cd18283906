#!/usr/bin/env bash
# A Ray cluster inside a SLURM job, and a study on it: sbatch examples/cluster/slurm.sh grid --seeds 10 --out runs/grid
#SBATCH --job-name=apil
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=32G
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@120
# Two minutes before its time is over the job is asked to stop: every run saves a checkpoint. Submit it again to go on.
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

if [ $# -eq 0 ]; then
    echo "usage: sbatch $0 TASK_OR_FILE [options of apil study]" >&2
    exit 2
fi

# Everybody who can reach the head can run code on all nodes: a token that only this job knows, and a private network.
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
RAY_AUTH_TOKEN=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
export RAY_AUTH_TOKEN

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}')
port=$((20000 + SLURM_JOB_ID % 20000))
cores=${SLURM_CPUS_PER_TASK:-1}

srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --node-ip-address="$address" --port="$port" --num-cpus="$cores" --include-dashboard=false --block &
for node in "${nodes[@]:1}"; do
    srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" \
        ray start --address="$address:$port" --num-cpus="$cores" --block &
done

# Wait until all nodes are there, at most two minutes.
for _ in $(seq 60); do
    found=$(ray status --address="$address:$port" 2>/dev/null | grep -c " node_" || true)
    [ "$found" -ge "${#nodes[@]}" ] && break
    sleep 2
done

apil study "$@" --engine ray --ray-address "$address:$port" &
study=$!
trap 'kill -TERM "$study"' TERM
# The first wait ends with the signal, the second with the study.
wait "$study" || wait "$study"
