"""Model folders by name: golden models and the demo model unchanged, large shapes created on demand.

A large shape is a config.json and a golden model's tokenizer, enough for `--load-format dummy`; those in CHECKPOINTS have
random weights in files.
"""
import json
import pathlib
import shutil
import sys

from processes import code_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "data"
DEMO = ROOT / "deploy" / "demo-model"
RANDOM_CHECKPOINT = ROOT / "tests" / "bench" / "random_checkpoint.py"
RANDOM_GGUF = ROOT / "tests" / "bench" / "random_gguf.py"
LIKE = {"mistral-7b": "mistral", "mistral-7b-files": "mistral", "qwen3-30b-a3b": "qwen3-moe", "mixtral-8x7b": "mixtral", "opt-6.7b": "opt",
        "opt-13b": "opt", "gemma2-27b": "gemma2", "gemma2-27b-shape": "gemma2", "llama-26b-q4_k": "llama3",
        "gpt-oss-20b": "gpt-oss", "gpt-oss-120b": "gpt-oss",
        "qwen3.6-27b": "qwen3-5", "qwen3.6-35b-a3b": "qwen3-5-moe", "gemma-4-31b": "gemma4", "glm-4.7-flash": "glm4-moe-lite"}
PUBLISHED = {name: ROOT / "docs" / "shapes" / name / "config.json"
             for name in ("gpt-oss-20b", "gpt-oss-120b", "qwen3.6-27b", "qwen3.6-35b-a3b", "gemma-4-31b", "glm-4.7-flash")}
CHECKPOINTS = {"gemma2-27b": 54.5e9, "mistral-7b-files": 14.5e9, "llama-26b-q4_k": 14.8e9}  # bytes
GGUF, GGUF_FILE = "llama-26b-q4_k", "model.gguf"


def golden_models():
    return sorted(path.parent.name for path in GOLDEN.glob("*/config.json"))


def config_of(folder):
    config = json.loads((folder / "config.json").read_text())
    return {**config, **config.get("text_config", {})}


def layers_of(config):
    return config.get("num_hidden_layers") or config.get("n_layer") or len(config["layers_block_type"])


def run_to_the_end(command):
    code = code_of(command)
    if code != 0:
        raise RuntimeError(f"{command[1].name} ended with exit code {code}")


class Models:
    def __init__(self, work, smoke, more=()):
        """`smoke`: each shape is replaced by the tiny golden model of its architecture. `more`: folders of further
        models, named after the folders."""
        self._work = work
        self._smoke = smoke
        self._more = {folder.name: folder.resolve() for folder in more}

    def folder(self, name):
        if name in self._more:
            return self._more[name]
        if name == "demo":
            return DEMO
        if name not in LIKE:
            return GOLDEN / name
        has_weights = name in CHECKPOINTS
        if self._smoke and not has_weights:
            return GOLDEN / LIKE[name]
        folder = self._work / ("smoke_models" if self._smoke else "models") / name
        done = folder / "complete"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # left by an interrupted run; its disk space is needed
            if has_weights and not self._smoke:
                self._work.mkdir(parents=True, exist_ok=True)
                free = shutil.disk_usage(self._work).free
                if free < 1.02 * CHECKPOINTS[name]:
                    raise RuntimeError(f"{name} takes {CHECKPOINTS[name] / 1e9:.1f} GB; {self._work} has {free / 1e9:.1f} GB free")
            self._write(name, folder)
            done.touch()
        return folder / GGUF_FILE if (folder / GGUF_FILE).exists() else folder

    def _write(self, name, folder):
        if name == GGUF and not self._smoke:
            folder.mkdir(parents=True)
            run_to_the_end([sys.executable, RANDOM_GGUF, folder / GGUF_FILE, "--dense"])
            return
        named = name.removesuffix("-files").removesuffix("-shape")
        shape = ("--config", PUBLISHED[name]) if name in PUBLISHED else ("--shape", named)
        run_to_the_end([sys.executable, RANDOM_CHECKPOINT, GOLDEN / LIKE[name], folder, *(() if self._smoke else shape),
                        *(() if name in CHECKPOINTS else ("--config-only",))])

    def for_tokens(self):
        """Names of models whose weights give meaningful tokens."""
        return [*(["gemma2"] if self._smoke else golden_models()), "demo", *self._more]

    def config(self, name):
        return config_of(self.folder(name))
