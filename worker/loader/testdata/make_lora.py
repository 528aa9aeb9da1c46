"""Makes lora/: a tiny Llama, adapters for it, a checkpoint in which an adapter was left unmerged, and what peft's
merge_and_unload makes of each (the reference). Weights are float32, names as peft and transformers write them.

usage: python make_lora.py OUT_DIR            needs: pip install torch transformers peft safetensors
"""
import pathlib
import sys

import peft
import torch
import transformers
from safetensors.torch import save_file

CASES = {
    "plain": dict(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj"]),
    "patterns": dict(
        r=4,
        lora_alpha=6,
        use_rslora=True,
        target_modules=["q_proj", "o_proj", "down_proj"],
        rank_pattern={"down_proj": 2, "model.layers.1.self_attn.q_proj": 8},
        alpha_pattern={"layers.0.self_attn.q_proj": 3, "o_proj": 12},
    ),
}


def tiny_llama():
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=24, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=False,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).float()


def main(out):
    out = pathlib.Path(out) / "lora"
    tiny_llama().save_pretrained(out / "base")
    for name, settings in CASES.items():
        model = peft.get_peft_model(tiny_llama(), peft.LoraConfig(task_type="CAUSAL_LM", **settings))
        torch.manual_seed(5)
        for key, tensor in model.named_parameters():
            if "lora_" in key:
                torch.nn.init.normal_(tensor, std=0.5)
        model.save_pretrained(out / name)
        if name == "plain":  # saved by a script that forgot to merge
            save_file({k: v.contiguous() for k, v in model.state_dict().items()}, out / "leftovers.safetensors")
        save_file(dict(model.merge_and_unload().state_dict()), out / name / "merged.safetensors")
        (out / name / "README.md").unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1])
