"""Makes tests/golden/data/adapters: LoRA adapters saved by peft, and the results of transformers with them.

usage: python make_adapters.py DATA_DIR     (needs torch, transformers, peft; made with transformers 5.23, peft 0.21)

DATA_DIR has the models of make.py. DATA_DIR/adapters/NAME is an adapter folder with a golden.json in the format of
make.py, for the base model (read as float32) with the adapter merged.
"""
import json
import sys
from pathlib import Path

import peft
import torch
import transformers
from make import run

PROMPTS = ["The coach leaves", "fresh horses wait there. " * 5 + "The road in the rain is"]
ADAPTERS = {
    "plain": dict(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"]),
    "rank-stabilised": dict(
        r=4, lora_alpha=8, use_rslora=True, target_modules=["k_proj", "o_proj", "gate_proj", "up_proj"],
        rank_pattern={"layers.1.self_attn.k_proj": 2}, alpha_pattern={"gate_proj": 4},
    ),
}  # fmt: skip
BASE = "mistral"


def main():
    torch.set_num_threads(1)
    data = Path(sys.argv[1])
    tokenizer = transformers.AutoTokenizer.from_pretrained(data / BASE)
    for seed, (name, config) in enumerate(ADAPTERS.items()):
        base = transformers.AutoModelForCausalLM.from_pretrained(
            data / BASE, dtype=torch.float32, attn_implementation="eager"
        )
        torch.manual_seed(seed)
        model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **config))
        for key, weight in model.named_parameters():
            if "lora_" in key:
                weight.data.normal_(0, 0.15)
        folder = data / "adapters" / name
        model.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        settings = json.loads((folder / "adapter_config.json").read_text())
        settings["base_model_name_or_path"] = BASE
        (folder / "adapter_config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
        merged = model.merge_and_unload().eval()
        cases = [run(merged, tokenizer, text) for text in PROMPTS]
        golden = dict(model=BASE, dtype="float32", cases=cases)
        (folder / "golden.json").write_text(json.dumps(golden, ensure_ascii=False))


if __name__ == "__main__":
    main()
