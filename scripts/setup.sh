#!/bin/sh
# Creates .venv once, with the CPU or the GPU set of packages. Instant when nothing changed,
# goes on where it was interrupted, installs anew when the requirements changed.
#
#   PYTHON=/path/to/python3.12 sh scripts/setup.sh    an interpreter of one's own choice
#   SET=cpu sh scripts/setup.sh                       the CPU set although there is a GPU
set -eu
cd "$(dirname "$0")/.."

fail() { printf 'setup: %s\n' "$1" >&2; exit 1; }

suits() { # an interpreter of a version that all packages have wheels for, able to make a venv
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
        >/dev/null 2>&1
}

if [ -z "${SET:-}" ]; then
    if nvidia-smi -L >/dev/null 2>&1; then SET=gpu; else SET=cpu; fi
fi
requirements=requirements/$SET.txt
[ -f "$requirements" ] || fail "SET=$SET: expected cpu or gpu"
stamp=.venv/installed-set
wanted=$(cat "$requirements" scripts/setup.sh | cksum)" $SET"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && .venv/bin/python -c '' 2>/dev/null; then
    exit 0
fi

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    python=
    for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3; do
        if suits "$candidate"; then python=$candidate; break; fi
    done
    [ -n "$python" ] || fail "no Python 3.11 to 3.13 with venv found on PATH. Install one \
(Debian, Ubuntu: apt install python3.11-venv), or name it: make setup PYTHON=/path/to/python3.11"
    echo "setup: creating .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
fi

log=.venv/setup.log
: > "$log"
install() { .venv/bin/python -m pip install --disable-pip-version-check --progress-bar off "$@" >>"$log" 2>&1; }
give_up() {
    tail -n 15 "$log" >&2
    fail "the installation failed (whole log: $log). Give the same command again to go on"
}

rm -f "$stamp"
echo "setup: installing the $SET set ($requirements), some minutes the first time"
if [ "$SET" = cpu ]; then
    # The +cpu build where the index has one, so that no CUDA package comes along; else the
    # ordinary one with all that it needs, which runs on CPUs as well but takes gigabytes.
    torch=$(grep '^torch==' "$requirements")
    install --no-deps "${torch%%+*}+cpu" || install "${torch%%+*}" || give_up
    install --no-deps -r "$requirements" || give_up
else
    install -r "$requirements" || give_up
fi
.venv/bin/python -c 'import ray.serve, torch, vllm' >>"$log" 2>&1 || give_up
printf '%s' "$wanted" > "$stamp"
echo "setup: done"
