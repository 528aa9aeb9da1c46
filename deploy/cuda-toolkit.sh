#!/usr/bin/env bash
# Installs a CUDA toolkit for building stagecoach into a folder, if the machine has none. It takes about 1.2 GB and
# downloads 0.7 GB. Needs neither root nor a GPU. Does nothing if it is already installed.
#   deploy/cuda-toolkit.sh [DIR]               the whole toolkit (default: build/cuda-toolkit, where the preset looks)
#   deploy/cuda-toolkit.sh --headers [DIR]     only FlashInfer's headers, for a machine with its own toolkit
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here

say() { echo "cuda-toolkit: $*"; }
die() { echo "cuda-toolkit: error: $*" >&2; exit 1; }

headers_only=
if [ "${1:-}" = --headers ]; then
  headers_only=1
  shift
fi
[ $# -le 1 ] || die "usage: deploy/cuda-toolkit.sh [--headers] [DIR]"
dir=${1:-$here/../build/cuda-toolkit}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

wheels=$(grep -v '^#' "$here/cuda-wheels.txt")
[ -z "$headers_only" ] || wheels=$(grep '^flashinfer' <<<"$wheels")
if [ "$(cat "$dir/wheels.txt" 2>/dev/null)" = "$wheels" ]; then
  exit 0
fi

command -v python3 >/dev/null || die "python3 is needed"
say "downloading the wheels of deploy/cuda-wheels.txt into $dir"
rm -rf "$dir/site" "$dir/pip" "$dir/wheels.txt"
# A separate pip: the system's pip may be missing, or refuse to install anything.
python3 -m venv "$dir/pip" || die "python3-venv is needed (deploy/install-deps.sh --test installs it)"
# shellcheck disable=SC2086
"$dir/pip/bin/pip" install -q --disable-pip-version-check --no-deps --no-compile --target "$dir/site" $wheels
rm -rf "$dir/pip"

ln -sfn site/flashinfer/data "$dir/flashinfer"
if [ -z "$headers_only" ]; then
  # Adds the parts of a toolkit that the wheels lack: lib64, libraries without a version in their names, a single
  # include folder.
  toolkit="$dir/site/nvidia/cu13"
  ln -sfn lib "$toolkit/lib64"
  for library in "$toolkit"/lib/*.so.*; do
    ln -sfn "$(basename "$library")" "${library%%.so.*}.so"
  done
  nccl="$dir/site/nvidia/nccl"
  ln -sfn libnccl.so.2 "$nccl/lib/libnccl.so"
  for file in "$nccl"/include/*; do ln -sfn "$file" "$toolkit/include/$(basename "$file")"; done
  for file in "$nccl"/lib/libnccl.so*; do ln -sfn "$file" "$toolkit/lib/$(basename "$file")"; done
  ln -sfn site/nvidia/cu13 "$dir/cuda"
  "$dir/cuda/bin/nvcc" --version >/dev/null || die "$dir/cuda/bin/nvcc does not run"
fi
echo "$wheels" >"$dir/wheels.txt"
say "done: $dir"
