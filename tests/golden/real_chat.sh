#!/usr/bin/env bash
# Compares prompts and answers of each model family with transformers, with the families' own chat templates. These are in
# the sources of llama-cpp-python, which it downloads.
#   tests/golden/real_chat.sh BUILD_DIR [PYTHON]     PYTHON: one that has transformers and jinja2
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:?usage: real_chat.sh BUILD_DIR [PYTHON]}
python=${2:-python3}
version=0.3.36
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -m pip download -q --no-deps --no-binary :all: --no-build-isolation "llama-cpp-python==$version" -d "$scratch"
tar -C "$scratch" -xzf "$scratch/llama_cpp_python-$version.tar.gz"
"$python" tests/golden/make_chat.py --templates "$scratch/llama_cpp_python-$version/vendor/llama.cpp/models/templates" \
  "$scratch/real.json"
STAGECOACH_CHAT_GOLDEN=$scratch/real.json "$build/bin/http_test" "*as in transformers*"
