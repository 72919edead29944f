#!/usr/bin/env bash
# A suite on this machine, from nothing to its page; a pool of vLLM replicas on all its GPUs.
#
#     deploy/one-node.sh memagent_table2 --models rl-memagent-7b --data DATA
#
# Takes the flags of `run.py sweep`. Stop it at any time: the same command goes on. A sweep that ends
# with failed or owed samples (exit code 1) is begun again, ATTEMPTS times in all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ $# -gt 0 ] || { echo "usage: deploy/one-node.sh SUITE [flags of run.py sweep]" >&2; exit 2; }
attempts=${ATTEMPTS:-3}
run_dir=${RUN_DIR:-results/$(basename "$1" .toml)}

sh scripts/setup.sh
python=.venv/bin/python
for attempt in $(seq "$attempts"); do
    status=0
    "$python" run.py sweep "$@" --out "$run_dir" || status=$?
    case $status in
        0) break ;;
        1) echo "one-node: attempt $attempt of $attempts ended with samples failed or owed" >&2 ;;
        *) exit "$status" ;;
    esac
done
"$python" run.py report "$run_dir"
exit "$status"
