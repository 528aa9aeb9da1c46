#!/usr/bin/env bash
# Builds llama.cpp's benchmarks for this machine, from the sources in its Python package.
#   tests/bench/build_llama_cpp.sh DIR     the programs are in DIR/bin
set -euo pipefail
dir=${1:?usage: build_llama_cpp.sh DIR}
version=0.3.36
mkdir -p "$dir"
python3 -m pip download -q --no-deps --no-binary llama-cpp-python "llama-cpp-python==$version" -d "$dir"
tar -C "$dir" -xzf "$dir/llama_cpp_python-$version.tar.gz"
cmake -S "$dir/llama_cpp_python-$version/vendor/llama.cpp" -B "$dir" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF
cmake --build "$dir" --target llama-bench llama-batched-bench llama-quantize
