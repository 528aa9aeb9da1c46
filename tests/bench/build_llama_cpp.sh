#!/usr/bin/env bash
# Builds llama.cpp's benchmarks for this machine, from the sources in its Python package.
#   tests/bench/build_llama_cpp.sh DIR     the programs are in DIR/bin
set -euo pipefail
dir=${1:?usage: build_llama_cpp.sh DIR}
version=0.3.36
mkdir -p "$dir"
python3 -m pip download -q --no-deps --no-binary llama-cpp-python "llama-cpp-python==$version" -d "$dir"
tar -C "$dir" -xzf "$dir/llama_cpp_python-$version.tar.gz"
# GCC 12 drops ggml's stores to the configuration of AMX's tiles. On CPUs with AMX, the programs that it builds die with SIGILL
# or SIGSEGV in ggml_backend_amx_mul_mat; which one depends on what the stack held.
compiler=()
if command -v clang-19 >/dev/null; then
  compiler=(-DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DGGML_OPENMP=OFF)
fi
cmake -S "$dir/llama_cpp_python-$version/vendor/llama.cpp" -B "$dir" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF "${compiler[@]}"
cmake --build "$dir" --target llama-bench llama-batched-bench llama-quantize
