#!/usr/bin/env bash
# Compares prompts and answers of each model family with transformers, with the families' own chat templates. It downloads
# the sources of llama-cpp-python, which have most of them, and mistral-common, which writes those of Mistral's tokenizers.
#   tests/golden/real_chat.sh BUILD_DIR [PYTHON]     PYTHON: one that has transformers, jinja2 and scikit-build-core
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:?usage: real_chat.sh BUILD_DIR [PYTHON]}
python=${2:-python3}
version=0.3.36 mistral_version=1.13.1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -m pip download -q --no-deps --no-binary :all: --no-build-isolation "llama-cpp-python==$version" -d "$scratch"
tar -C "$scratch" -xzf "$scratch/llama_cpp_python-$version.tar.gz"
templates=$scratch/llama_cpp_python-$version/vendor/llama.cpp/models/templates
"$python" -m venv "$scratch/mistral"
"$scratch/mistral/bin/pip" install -q "mistral-common==$mistral_version"
"$scratch/mistral/bin/python" - "$templates" <<'PYTHON'
import pathlib
import sys

from mistral_common.integrations.chat_templates import template_generator as generator
from mistral_common.tokens.tokenizers.base import TokenizerVersion

EFFORTS = {"reasoning_effort_values": ("none", "high"), "reasoning_effort_default": "none"}
CONFIGS = {"v7": {}, "v11": {}, "v11-think": {"plain_thinking_support": True}, "v13": {"thinking_support": True},
           "v15": {"thinking_support": True, **EFFORTS}}
for name, config in CONFIGS.items():
    version = TokenizerVersion(name.split("-")[0])
    text = generator.build_chat_template(generator.TemplateConfig(version=version, use_special_token_variables=True, **config))
    pathlib.Path(sys.argv[1], f"mistral-common-{name}.jinja").write_text(text)
PYTHON
"$python" tests/golden/make_chat.py --templates "$templates" "$scratch/real.json"
STAGECOACH_CHAT_GOLDEN=$scratch/real.json "$build/bin/http_test" "*as in transformers*"
