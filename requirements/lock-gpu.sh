#!/usr/bin/env bash
# Makes gpu.txt: all that a machine with NVIDIA GPUs installs, out of pyproject.toml. Versions that
# are in the file already, or in cpu.txt, stay where they can; `--upgrade` takes the newest.
set -euo pipefail
cd "$(dirname "$0")/.."
made=$(mktemp)
trap 'rm -f "$made"' EXIT
{ cat requirements/gpu.txt; cat requirements/cpu.txt; } | grep -v '^#' | sort -u -t= -k1,1 >"$made"
uv pip compile pyproject.toml --extra gpu --extra dev --only-binary :all: \
  --python-version 3.11 --python-platform x86_64-manylinux_2_35 \
  --quiet --no-annotate --no-header --output-file "$made" "$@"
{ sed -n '/^#/p' requirements/gpu.txt; cat "$made"; } >requirements/gpu.txt.new
mv requirements/gpu.txt.new requirements/gpu.txt
