#!/bin/bash
# A Ray cluster on the nodes of one SLURM job, for the length of one experiment. Filled in by `codegrep submit`.
@{directives}
#SBATCH --signal=B:INT@120
set -uo pipefail

cd @{folder} || exit 1
@{setup}
@{exports}
for name in @{required}; do
    [ -n "${!name:-}" ] || { echo "codegrep: $name is not set on the cluster" >&2; exit 2; }
done

# Every job has a token of its own: without it nobody on these nodes can reach this Ray. It stays in a file that only
# its owner can read and never appears on a command line.
umask 077
token=$(mktemp "$PWD/.ray-token-XXXXXX")
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$token"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$token"

nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head=${nodes[0]}
port=$((20000 + SLURM_JOB_ID % 20000))
address="$head:$port"
end() {
    kill "${started[@]}" 2>/dev/null
    wait "${started[@]}" 2>/dev/null
    rm -f "$token"
}
started=()
trap end EXIT
srun --nodes=1 --ntasks=1 --overlap -w "$head" ray start --head --port="$port" --num-cpus=@{cpus} --num-gpus=@{gpus} \
    --disable-usage-stats --block &
started+=($!)
for node in "${nodes[@]:1}"; do
    srun --nodes=1 --ntasks=1 --overlap -w "$node" ray start --address="$address" --num-cpus=@{cpus} \
        --num-gpus=@{gpus} --disable-usage-stats --block &
    started+=($!)
done
for _ in $(seq 60); do
    [ "$(ray list nodes --address "$address" --format json 2>/dev/null | grep -c '"state": "ALIVE"')" -ge "${#nodes[@]}" ] && break
    sleep 5
done

# The run is told of SIGINT (before the time limit, and by scancel) and ends in order; the same command continues it.
export RAY_ADDRESS="$address"
@{entrypoint} &
run=$!
trap 'kill -INT "$run"' INT TERM
wait "$run"
code=$?
while kill -0 "$run" 2>/dev/null; do
    wait "$run"
    code=$?
done
exit "$code"
