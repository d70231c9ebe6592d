#!/bin/bash
#SBATCH --job-name=remask
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@300
# Starts Ray on the nodes of the allocation and runs remask on them:
#   sbatch slurm.sh reproduce all --store ~/results.db
# Submitted again after the time limit, or after a failure, it continues where it stopped.
set -eu

port=${RAY_PORT:-6379}
# The batch script itself runs on the first node.
head=${HEAD_IP:-$(hostname -I | cut -d ' ' -f 1)}
export RAY_ADDRESS="$head:$port"
# Others can reach these nodes: only those with the token in this home can use the cluster.
export RAY_AUTH_MODE=token
ray get-auth-token --generate > /dev/null
checkpoints=${CHECKPOINTS:-$HOME/remask-checkpoints} # on a file system that all nodes share
cpus=$SLURM_CPUS_PER_TASK
others=$((SLURM_JOB_NUM_NODES - 1))
trap 'kill $(jobs -p) 2> /dev/null' EXIT

srun --nodes=1 --ntasks=1 --nodelist="$(hostname)" \
  ray start --head --node-ip-address="$head" --port="$port" --num-cpus="$cpus" --block &
until (exec 3<> "/dev/tcp/$head/$port") 2> /dev/null; do sleep 1; done
if [ "$others" -gt 0 ]; then
  srun --nodes="$others" --ntasks="$others" --exclude="$(hostname)" \
    ray start --address="$RAY_ADDRESS" --num-cpus="$cpus" --block &
fi

remask "$@" --on ray --address "$RAY_ADDRESS" --checkpoints "$checkpoints" &
run=$!
# Five minutes before the time limit, Slurm asks to stop: remask saves.
trap 'kill -TERM $run' TERM
code=0
wait $run || code=$?
# A signal ends the first wait, and remask may still be saving.
if kill -0 $run 2> /dev/null; then wait $run || code=$?; fi
exit $code
