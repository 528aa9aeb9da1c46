#!/usr/bin/env bash
# Builds the kernels' tests as PTX for Ampere (80) and Ada (89), so that a newer GPU shows what such GPUs would compute:
# tests/gpu/run.py --only kernels finds them beside the other programs.
#   tests/gpu/build_ptx.sh [BIN_DIR]      # build/cuda/bin; cmake --preset cuda or deploy/cuda-toolkit.sh comes before
# It takes about 5 minutes for each on two cores. Two head sizes and no soft cap keep it that short.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bin=${1:-build/cuda/bin}

mkdir -p "$bin"
for architecture in 80 89; do
  build=build/ptx$architecture
  cmake --preset cuda -B "$build" -DSTAGECOACH_UNITY=ON "-DSTAGECOACH_CUDA_ARCHITECTURES=$architecture-virtual" \
    "-DSTAGECOACH_CUDA_HEAD_DIMS=64;128" -DSTAGECOACH_CUDA_SOFTCAPS=false
  cmake --build "$build" -j "$(nproc)" --target kernels_cuda_test golden_cuda_test
  for program in kernels_cuda_test golden_cuda_test; do
    strip -o "$bin/$program.compute_$architecture" "$build/bin/$program"
  done
done
