"""Makes the tiny models of tests/golden/data and the results of Hugging Face transformers for them.

usage: python make.py OUT_DIR [NAME ...]     (needs torch, transformers, tokenizers; made with transformers 5.23)
       python make.py --rounding OUT_DIR     (only updates the "bfloat16" errors of existing models)

OUT_DIR/NAME is a checkpoint in the form in which models are published: config.json, 16-bit weights, tokenizer, chat
template. Its golden.json has, for every prompt: token ids, float32 logits of the last position, the greedy continuation
with each token's log-probability and its margin over the second-best token, and the prompt's log-probabilities. The
reference runs in float32 on the CPU with eager attention and without a cache. "bfloat16" has the root mean square error
of the reference itself when it computes in that dtype; it is the yardstick for our error. The models are random, so
their text is noise; only the agreement of two programs matters.
"""
import json
import re
import sys
from pathlib import Path

import safetensors.torch
import tokenizers
import torch
import transformers

N_VOCAB = 320
N_GREEDY = 20
# transformers 5.23 has this class, but its list of causal language models lacks it.
transformers.AutoModelForCausalLM.register(transformers.Mistral4Config, transformers.Mistral4ForCausalLM, exist_ok=True)
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
PAD, BOS, EOS = 0, 1, 2

CORPUS = [
    "The coach leaves at nine; the next stage is an hour away, and fresh horses wait there.",
    "the stage, the stages, the driver and the passengers, and the road in the rain",
    '{"stage": 1, "layers": [0, 1, 2, 3], "ready": true}',
    "Über die Brücke führt kein Weg zurück. Où est la gare ? ¿Dónde está la estación?",
    "駅馬車は九時に出発します。 Почтовая станция 🐎 0123456789",
]
PROMPTS = [
    "The coach leaves",
    "h",
    '{"stage": 1, "layers": [0, 1,',
    "駅馬車は九時に",
    "fresh horses wait there. " * 5 + "The road in the rain is",
    "the driver and the passengers, " * 12,
]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<{{ message['role'] }}> {{ message['content'] | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


def make_tokenizer():
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    bpe.train_from_iterator(
        CORPUS,
        tokenizers.trainers.BpeTrainer(
            vocab_size=N_VOCAB,
            special_tokens=SPECIAL,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    bpe.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        chat_template=CHAT_TEMPLATE,
    )


def sizes(n_heads, n_kv_heads, **more):
    return dict(
        vocab_size=N_VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads, head_dim=64, max_position_embeddings=512, bos_token_id=BOS, eos_token_id=EOS,
        pad_token_id=PAD, **more,
    )  # fmt: skip


def opt():
    # Enough positions for prompts of 2,040 tokens. OPT can have heads of 64 only with this hidden size.
    return transformers.OPTConfig(
        vocab_size=N_VOCAB, hidden_size=128, ffn_dim=64, num_hidden_layers=4, num_attention_heads=2,
        max_position_embeddings=2304, dropout=0.0, bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD,
    )  # fmt: skip


def llama3():
    scaling = dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32
    )
    return transformers.LlamaConfig(**sizes(4, 2), rope_theta=500000.0, rope_scaling=scaling, tie_word_embeddings=True)


def llama_linear():
    scaling = dict(rope_type="linear", factor=3.0)
    return transformers.LlamaConfig(
        **sizes(2, 2), rope_theta=10000.0, rope_scaling=scaling, attention_bias=True, mlp_bias=True
    )


def mistral():
    return transformers.MistralConfig(**sizes(4, 1), rope_theta=1e6, sliding_window=None)


def mistral_window():
    return transformers.MistralConfig(**sizes(2, 1), rope_theta=1e4, sliding_window=20)


def gemma2():
    return transformers.Gemma2Config(
        **sizes(4, 2), query_pre_attn_scalar=40, sliding_window=20, attn_logit_softcapping=6.0,
        final_logit_softcapping=4.0,
    )  # fmt: skip


def gemma3():
    return transformers.Gemma3TextConfig(
        **{**sizes(2, 1), "num_hidden_layers": 5}, query_pre_attn_scalar=40, sliding_window=20,
        sliding_window_pattern=3, rope_scaling=dict(rope_type="linear", factor=2.0),
    )  # fmt: skip


def opt_postnorm():
    return transformers.OPTConfig(
        vocab_size=N_VOCAB, hidden_size=64, ffn_dim=64, num_hidden_layers=4, num_attention_heads=2,
        max_position_embeddings=512, do_layer_norm_before=False, word_embed_proj_dim=32, dropout=0.0,
        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD,
    )  # fmt: skip


def gpt2():
    return transformers.GPT2Config(
        vocab_size=N_VOCAB, n_embd=64, n_inner=96, n_layer=4, n_head=2, n_positions=512, bos_token_id=BOS,
        eos_token_id=EOS, pad_token_id=PAD,
    )  # fmt: skip


def gemma():
    return transformers.GemmaConfig(**sizes(2, 1), hidden_act="gelu_pytorch_tanh")


def qwen2():
    return transformers.Qwen2Config(
        **sizes(2, 1), rope_theta=1e6, use_sliding_window=True, sliding_window=20, max_window_layers=2,
        tie_word_embeddings=True,
    )  # fmt: skip


def qwen3():
    scaling = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=128)
    return transformers.Qwen3Config(**sizes(2, 1), rope_theta=1e6, rope_scaling=scaling)


def mixtral():
    return transformers.MixtralConfig(
        **{**sizes(2, 1), "intermediate_size": 32}, num_local_experts=4, num_experts_per_tok=2, rope_theta=1e6
    )


def qwen3_moe():
    # A dense layer between MoE layers.
    return transformers.Qwen3MoeConfig(
        **sizes(2, 1), num_experts=8, num_experts_per_tok=3, moe_intermediate_size=16, norm_topk_prob=False,
        mlp_only_layers=[1], tie_word_embeddings=True,
    )  # fmt: skip


def phi3_sizes():
    more = dict(hidden_size=64, intermediate_size=32, head_dim=None)
    return {key: value for key, value in {**sizes(2, 1), **more}.items() if value is not None}


def phi3():
    scaling = dict(
        rope_type="longrope", short_factor=[1 + 0.05 * i for i in range(16)], long_factor=[2.0] * 16,
        attention_factor=1.1,
    )  # fmt: skip
    return transformers.Phi3Config(
        **phi3_sizes(), rope_scaling=scaling, original_max_position_embeddings=512, sliding_window=30
    )


def phi3_long():
    scaling = dict(rope_type="longrope", short_factor=[1.0] * 12, long_factor=[1 + 0.4 * i for i in range(12)])
    return transformers.Phi3Config(
        **phi3_sizes(), rope_scaling=scaling, original_max_position_embeddings=16, partial_rotary_factor=0.75,
        tie_word_embeddings=True,
    )  # fmt: skip


def gpt_oss():
    # A limit that cuts activations of this size.
    scaling = dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=64, truncate=False)
    return transformers.GptOssConfig(
        **{**sizes(4, 2), "head_dim": 32, "intermediate_size": 16}, num_local_experts=5, num_experts_per_tok=2,
        sliding_window=20, rope_parameters=dict(scaling, rope_theta=150000.0), swiglu_limit=1.5,
    )  # fmt: skip


def glm4_moe():
    # A dense layer first; 8 experts in 4 groups, of which 2 are used.
    return transformers.Glm4MoeConfig(
        **{**sizes(4, 2), "head_dim": 32}, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=16,
        n_shared_experts=2, n_group=4, topk_group=2, routed_scaling_factor=1.5, first_k_dense_replace=1,
        use_qk_norm=True, attention_bias=True, num_nextn_predict_layers=1, rope_theta=1e6, partial_rotary_factor=0.5,
    )  # fmt: skip


def minimax_m2():
    return transformers.MiniMaxM2Config(
        **{**sizes(4, 2), "head_dim": 32, "intermediate_size": 16}, num_local_experts=8, num_experts_per_tok=3,
        rope_theta=5e6, rotary_dim=16,
    )  # fmt: skip


def ministral3():
    rope = dict(
        rope_type="yarn", rope_theta=1e6, factor=8.0, original_max_position_embeddings=24, mscale=1.0,
        mscale_all_dim=1.0, llama_4_scaling_beta=0.4,
    )  # fmt: skip
    return transformers.Ministral3Config(**{**sizes(4, 2), "head_dim": 32}, rope_parameters=rope)


def seed_oss():
    return transformers.SeedOssConfig(
        **{**sizes(4, 2), "head_dim": 32}, rope_theta=1e7, attention_bias=True, attention_out_bias=False, mlp_bias=False,
        residual_dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip


def delta_net(n_key_heads, n_value_heads, key_dim, value_dim, interval):
    return dict(
        linear_num_key_heads=n_key_heads, linear_num_value_heads=n_value_heads, linear_key_head_dim=key_dim,
        linear_value_head_dim=value_dim, full_attention_interval=interval,
    )  # fmt: skip


def qwen3_next():
    # The last layer is recurrent.
    return transformers.Qwen3NextConfig(
        **sizes(2, 1), **delta_net(2, 4, 16, 24, interval=3), num_experts=6, num_experts_per_tok=3,
        moe_intermediate_size=16, shared_expert_intermediate_size=24, mlp_only_layers=[1],
    )  # fmt: skip


def qwen3_5():
    return transformers.Qwen3_5TextConfig(
        **{**sizes(4, 2), "intermediate_size": 32}, **delta_net(2, 6, 24, 16, interval=2)
    )


def qwen3_5_moe():
    without_dense = {key: value for key, value in sizes(2, 1).items() if key != "intermediate_size"}
    return transformers.Qwen3_5MoeTextConfig(
        **without_dense, **delta_net(2, 2, 16, 40, interval=4), num_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=16, shared_expert_intermediate_size=16, tie_word_embeddings=True,
    )  # fmt: skip


def gemma4_sizes(**more):
    # Rotation of half of the values of full layers, so that it shows in prompts of this length.
    rope = dict(
        full_attention=dict(rope_type="proportional", partial_rotary_factor=0.5, rope_theta=1e4),
        sliding_attention=dict(rope_type="default", rope_theta=1e3),
    )  # fmt: skip
    kinds = {"s": "sliding_attention", "f": "full_attention"}
    layer_types = [kinds[kind] for kind in more.pop("kinds")]
    return transformers.Gemma4TextConfig(**{
        **sizes(4, 2), "head_dim": 16, "global_head_dim": 32, "sliding_window": 20, "final_logit_softcapping": 4.0,
        "vocab_size_per_layer_input": N_VOCAB, "hidden_size_per_layer_input": 0, "rope_parameters": rope,
        "num_hidden_layers": len(layer_types), "layer_types": layer_types, **more,
    })  # fmt: skip


def gemma4():
    # Like 31B.
    return gemma4_sizes(kinds="sfsf", attention_k_eq_v=True, num_global_key_value_heads=1)


def gemma4_moe():
    # Like 26B-A4B.
    return gemma4_sizes(
        kinds="ssfsf", attention_k_eq_v=True, num_global_key_value_heads=1, intermediate_size=32, enable_moe_block=True,
        num_experts=6, top_k_experts=2, moe_intermediate_size=16,
    )  # fmt: skip


def gemma4_e():
    # Like E2B. Layers 5 and 6 use the keys and values of layers 3 and 4.
    return gemma4_sizes(
        kinds="ssfsfsf", num_key_value_heads=1, intermediate_size=16, num_kv_shared_layers=2, use_double_wide_mlp=True,
        hidden_size_per_layer_input=8,
    )  # fmt: skip


def gemma4_wide():
    # Heads of published sizes: 512 in full layers, for which GPUs have a kernel of their own.
    return gemma4_sizes(
        kinds="sssf", num_attention_heads=2, num_key_value_heads=1, head_dim=64, global_head_dim=512, attention_k_eq_v=True,
        num_global_key_value_heads=1,
    )  # fmt: skip


def llama4_sizes(**more):
    return transformers.Llama4TextConfig(**{
        **sizes(2, 1), "intermediate_size": 16, "intermediate_size_mlp": 48, "num_local_experts": 4, "attention_chunk_size": 20,
        "floor_scale": 10, "attn_scale": 0.3, **more,
    })  # fmt: skip


def llama4():
    # Like Scout. Layer 2 has no rotation. Its chunks are no multiple of KV blocks.
    scaling = dict(
        rope_type="llama3", rope_theta=1e4, factor=4.0, low_freq_factor=1.0, high_freq_factor=1.0,
        original_max_position_embeddings=32,
    )  # fmt: skip
    return llama4_sizes(no_rope_layers=[1, 1, 0, 1], rope_parameters=scaling)


def llama4_dense():
    # Like Maverick: experts in every other layer, and no norms of q and k.
    rope = dict(rope_type="default", rope_theta=1e4)
    return llama4_sizes(interleave_moe_layer_step=2, use_qk_norm=False, attention_chunk_size=32, rope_parameters=rope)


def nemotron_sizes(**more):
    # transformers bounds dt by time_step_min, and NVIDIA's own code does not.
    return transformers.NemotronHConfig(**{
        **sizes(2, 1), "head_dim": 32, "mamba_num_heads": 6, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 24,
        "time_step_min": 1e-30, "chunk_size": 16, **more,
    })  # fmt: skip


def nemotron_h():
    # Like Nemotron-H and Nemotron Nano 2.
    return nemotron_sizes(hybrid_override_pattern="M-M*-M", intermediate_size=40)


def nemotron_h_moe():
    # Like Nemotron Nano 3.
    return nemotron_sizes(
        hybrid_override_pattern="MEM*EME", use_conv_bias=False, n_routed_experts=6, num_experts_per_tok=3,
        moe_intermediate_size=16, moe_shared_expert_intermediate_size=24, routed_scaling_factor=2.5,
    )  # fmt: skip


def smollm3():
    return transformers.SmolLM3Config(**{**sizes(4, 2), "head_dim": 8}, no_rope_layers=[1, 0, 1, 1])


def latent_sizes(**more):
    # Every part of a head has a size of its own.
    without_heads = {key: value for key, value in sizes(4, 4).items() if key != "head_dim"}
    return dict(
        **without_heads, kv_lora_rank=32, qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=16, n_routed_experts=8,
        num_experts_per_tok=3, moe_intermediate_size=16, first_k_dense_replace=1, **more,
    )  # fmt: skip


def latent_rope(mscale, mscale_all_dim):
    return dict(
        rope_type="yarn", rope_theta=1e4, factor=8.0, original_max_position_embeddings=64, mscale=mscale,
        mscale_all_dim=mscale_all_dim, beta_fast=32, beta_slow=1,
    )  # fmt: skip


def deepseek_v2_lite():
    # Queries are not compressed. Two scales that differ, so that both show.
    return transformers.DeepseekV2Config(
        **{**latent_sizes(), "intermediate_size": 48}, q_lora_rank=None, n_shared_experts=2,
        rope_parameters=latent_rope(0.9, 0.707),
    )  # fmt: skip


def deepseek_v2():
    return transformers.DeepseekV2Config(
        **latent_sizes(), q_lora_rank=20, n_shared_experts=1, topk_method="group_limited_greedy", n_group=4,
        topk_group=2, routed_scaling_factor=2.0, rope_parameters=dict(rope_type="default", rope_theta=1e4),
    )  # fmt: skip


def deepseek_v3():
    return transformers.DeepseekV3Config(
        **latent_sizes(), q_lora_rank=20, n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=2.5,
        num_nextn_predict_layers=1, rope_parameters=latent_rope(1.0, 1.0),
    )  # fmt: skip


def deepseek_wide():
    # Latents of a published size, for which GPUs have a kernel of their own.
    return transformers.DeepseekV3Config(
        **{**latent_sizes(), "num_attention_heads": 2, "num_key_value_heads": 2, "kv_lora_rank": 256, "qk_rope_head_dim": 64,
           "first_k_dense_replace": 4},
        q_lora_rank=20, n_shared_experts=1, n_group=4, topk_group=2, rope_parameters=latent_rope(1.0, 1.0),
    )  # fmt: skip


def glm4_moe_lite():
    # A layer with experts comes before a dense one. Scores are not stretched, unlike DeepSeek's.
    return transformers.Glm4MoeLiteConfig(
        **{**latent_sizes(), "first_k_dense_replace": 0}, q_lora_rank=20, n_shared_experts=1, n_group=1, topk_group=1,
        routed_scaling_factor=1.8, num_nextn_predict_layers=1, rope_theta=1e6,
        mlp_layer_types=["sparse", "dense", "sparse", "sparse"],
    )  # fmt: skip


def mistral4():
    # Like Small 4, whose published file has no dense layer, and 1 as the factor of the experts' weights. Queries grow
    # within the prompts.
    rope = dict(latent_rope(1.0, 1.0), original_max_position_embeddings=24, llama_4_scaling_beta=0.4)
    return transformers.Mistral4Config(
        **latent_sizes(), q_lora_rank=20, n_shared_experts=1, n_group=1, topk_group=1, routed_scaling_factor=1.5,
        rope_parameters=rope,
    )  # fmt: skip


# name: (configuration, dtype of the file, whether rotary keys use the older spelling, largest shard)
MODELS = {
    "opt": (opt, torch.float16, False, "5GB"),
    "llama3": (llama3, torch.bfloat16, True, "100KB"),
    "llama-linear": (llama_linear, torch.float16, False, "5GB"),
    "mistral": (mistral, torch.bfloat16, True, "5GB"),
    "mistral-window": (mistral_window, torch.bfloat16, False, "5GB"),
    "gemma2": (gemma2, torch.bfloat16, True, "5GB"),
    "gemma3": (gemma3, torch.bfloat16, False, "100KB"),
    "opt-postnorm": (opt_postnorm, torch.float16, False, "5GB"),
    "gpt2": (gpt2, torch.float16, False, "5GB"),
    "gemma": (gemma, torch.bfloat16, False, "5GB"),
    "qwen2": (qwen2, torch.bfloat16, True, "5GB"),
    "qwen3": (qwen3, torch.bfloat16, True, "5GB"),
    "mixtral": (mixtral, torch.bfloat16, False, "5GB"),
    "qwen3-moe": (qwen3_moe, torch.bfloat16, True, "100KB"),
    "phi3": (phi3, torch.bfloat16, False, "5GB"),
    "phi3-long": (phi3_long, torch.bfloat16, True, "5GB"),
    "gpt-oss": (gpt_oss, torch.bfloat16, True, "5GB"),
    "glm4-moe": (glm4_moe, torch.bfloat16, True, "5GB"),
    "minimax-m2": (minimax_m2, torch.bfloat16, False, "5GB"),
    "ministral3": (ministral3, torch.bfloat16, False, "5GB"),
    "seed-oss": (seed_oss, torch.bfloat16, True, "5GB"),
    "qwen3-next": (qwen3_next, torch.bfloat16, False, "5GB"),
    "qwen3-5": (qwen3_5, torch.bfloat16, False, "5GB"),
    "qwen3-5-moe": (qwen3_5_moe, torch.bfloat16, False, "5GB"),
    "gemma4": (gemma4, torch.bfloat16, False, "5GB"),
    "gemma4-moe": (gemma4_moe, torch.bfloat16, False, "5GB"),
    "gemma4-e": (gemma4_e, torch.bfloat16, False, "5GB"),
    "llama4": (llama4, torch.bfloat16, False, "5GB"),
    "llama4-dense": (llama4_dense, torch.bfloat16, False, "5GB"),
    "nemotron-h": (nemotron_h, torch.bfloat16, False, "5GB"),
    "nemotron-h-moe": (nemotron_h_moe, torch.bfloat16, False, "5GB"),
    "smollm3": (smollm3, torch.bfloat16, False, "5GB"),
    "deepseek-v2-lite": (deepseek_v2_lite, torch.bfloat16, True, "5GB"),
    "deepseek-v2": (deepseek_v2, torch.bfloat16, False, "5GB"),
    "deepseek-v3": (deepseek_v3, torch.bfloat16, True, "5GB"),
    "glm4-moe-lite": (glm4_moe_lite, torch.bfloat16, True, "5GB"),
    "mistral4": (mistral4, torch.bfloat16, False, "5GB"),
    "gemma4-wide": (gemma4_wide, torch.bfloat16, False, "5GB"),
    "deepseek-wide": (deepseek_wide, torch.bfloat16, True, "5GB"),
}
# The published files of these hold a vision tower and layers for the prediction of several tokens.
MULTIMODAL = {"qwen3-5": "Qwen3_5", "qwen3-5-moe": "Qwen3_5Moe", "llama4": "Llama4"}


# These models' seeds are not 100 plus their place in the list. With the seeds of those with experts, no row has two experts,
# or groups of them, whose scores are nearly the same: rounding would choose between them.
SEEDS = {"gpt-oss": 116, "glm4-moe": 222, "minimax-m2": 223, "ministral3": 119, "seed-oss": 120, "qwen3-next": 116,
         "qwen3-5": 117, "qwen3-5-moe": 118, "llama4": 303, "llama4-dense": 307, "nemotron-h": 307, "nemotron-h-moe": 301,
         "deepseek-v2-lite": 127, "deepseek-v2": 128, "deepseek-v3": 129, "mistral4": 311, "gemma4-wide": 409}


@torch.no_grad()
def randomise(model, dtype, seed):
    """Weights for which every part of a layer changes the result. The library's own initialization gives nearly equal
    logits."""
    random = torch.Generator().manual_seed(seed)
    # With norms after the blocks, weak embeddings and strong blocks would make all positions alike.
    norms_before = getattr(model.config, "do_layer_norm_before", True)
    embed_gain, end_gain = (0.6, 3.0) if norms_before else (4.0, 1.0)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=random)
        if name.endswith("sinks"):
            weight.copy_(1 + noise)  # as large as scores
        elif name.endswith("A_log"):
            weight.copy_(0.5 * noise - 2.5)  # states that remember some tens of tokens
        elif name.endswith("dt_bias") and model.config.model_type == "nemotron_h":
            weight.copy_(noise)  # else the state would hardly count beside D
        elif weight.dim() == 1:
            weight.add_(0.1 * noise)  # norms around 1 (or 0, Gemma's), biases around 0
        elif "embed" in name or name.endswith(("wte.weight", "wpe.weight")):
            weight.copy_(embed_gain * noise / weight.shape[1] ** 0.5)
        else:
            ends_block = name.removesuffix(".weight").endswith(
                ("o_proj", "out_proj", "down_proj", "fc2", "c_proj")
            )
            # GPT-2's Conv1D and the experts of gpt-oss and Llama 4 are [inputs, outputs]; all other matrices are [outputs,
            # inputs].
            inputs_first = ".c_" in name or (
                ".experts." in name and model.config.model_type in ("gpt_oss", "llama4_text")
            )
            n_inputs = weight.shape[-2 if inputs_first else -1]
            weight.copy_((end_gain if ends_block else 1.2) * noise / n_inputs**0.5)
        weight.copy_(weight.to(dtype).float())
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_((0.3 * torch.randn(buffer.shape, generator=random)).to(dtype).float())
        elif name.endswith("layer_scalar"):
            buffer.copy_((1 + 0.2 * torch.randn(buffer.shape, generator=random)).to(dtype).float())
    model.tie_weights()


def spell_as_before(config_file):
    config = json.loads(config_file.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    if rope["rope_type"] == "longrope":
        rope = dict(rope, type="su")
        del rope["rope_type"], rope["original_max_position_embeddings"]  # also stored outside rope_parameters
    if config["model_type"] == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts")
    config["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    config.pop("layer_types", None)
    config_file.write_text(json.dumps(config, indent=2) + "\n")


def wrap_as_multimodal(folder, prefix):
    """The form of the published files: the text model's keys in a section, its tensors under model.language_model
    (Llama 4 and Mistral: language_model.model), the experts of a layer in one tensor, tensors of other parts beside
    them."""
    file = folder / "model.safetensors"
    tensors = {}
    experts = {}
    for name, tensor in safetensors.torch.load_file(file).items():
        if prefix in ("Llama4", "Mistral3"):
            name = f"language_model.{name}"
        else:
            name = name.replace("model.", "model.language_model.", 1)
        match = re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight", name)
        if match:
            experts.setdefault(match[1], {})[int(match[2]), match[3]] = tensor
        else:
            tensors[name] = tensor
    for name, parts in experts.items():
        numbers = range(len(parts) // 3)
        up = [torch.cat([parts[i, "gate"], parts[i, "up"]]) for i in numbers]
        tensors[f"{name}.gate_up_proj"] = torch.stack(up)
        tensors[f"{name}.down_proj"] = torch.stack([parts[i, "down"] for i in numbers])
    tensors["model.visual.blocks.0.norm1.weight"] = torch.ones(8, dtype=torch.bfloat16)
    tensors["mtp.layers.0.input_layernorm.weight"] = torch.ones(32, dtype=torch.bfloat16)
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    file.chmod(0o644)
    text = json.loads((folder / "config.json").read_text())
    config = dict(
        architectures=[f"{prefix}ForConditionalGeneration"],
        model_type=prefix.lower() if prefix == "Mistral3" else text["model_type"].removesuffix("_text"),
        text_config=text,
        tie_word_embeddings=text["tie_word_embeddings"],
        vision_config=dict(depth=1, hidden_size=8),
    )
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def prompts(config, tokenizer):
    """For LongRoPE, only prompts above the original context: the server always uses the long factors, but the reference
    selects the factors by each sequence's length."""
    rope = getattr(config, "rope_parameters", None) or {}
    switches = rope.get("rope_type") == "longrope" and rope["original_max_position_embeddings"] < 512
    least = rope["original_max_position_embeddings"] if switches else 0
    return [text for text in PROMPTS if len(tokenizer(text)["input_ids"]) > least]


@torch.no_grad()
def run(model, tokenizer, text):
    prompt = tokenizer(text)["input_ids"]
    log_probs = torch.log_softmax(model(torch.tensor([prompt]), use_cache=False).logits[0], -1)
    case = dict(
        text=text,
        prompt_ids=prompt,
        logits=None,
        greedy_ids=[],
        greedy_logprob_and_margin=[],
        prompt_logprobs=[None] + [round(log_probs[i, t].item(), 6) for i, t in enumerate(prompt[1:])],
    )
    for _ in range(N_GREEDY):
        logits = model(torch.tensor([prompt + case["greedy_ids"]]), use_cache=False).logits[0, -1]
        case["logits"] = case["logits"] or [round(x, 5) for x in logits.tolist()]
        best, second = torch.log_softmax(logits, -1).topk(2).values.tolist()
        case["greedy_ids"].append(int(logits.argmax()))
        case["greedy_logprob_and_margin"].append([round(best, 6), round(best - second, 6)])
    return case


@torch.no_grad()
def rounding(folder, cases):
    """Error of the reference's results in bfloat16."""
    config = MODELS[folder.name][0]()  # the folder's config may use the older spelling
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.bfloat16, attn_implementation="eager"
    ).eval()
    logits, log_probs = [], []
    for case in cases:
        prompt = case["prompt_ids"]
        result = model(torch.tensor([prompt]), use_cache=False).logits[0].float()
        logits += (result[-1] - torch.tensor(case["logits"])).tolist()
        result = torch.log_softmax(result, -1)
        log_probs += [result[i, t].item() - case["prompt_logprobs"][i + 1] for i, t in enumerate(prompt[1:])]

    def rms(values):
        return round((sum(v * v for v in values) / len(values)) ** 0.5, 6)

    return dict(logits_rms=rms(logits), prompt_logprobs_rms=rms(log_probs))


def write_golden(folder, cases):
    golden = dict(model=folder.name, dtype="float32", bfloat16=rounding(folder, cases), cases=cases)
    (folder / "golden.json").write_text(json.dumps(golden, ensure_ascii=False))
    print(f"{folder.name}: {golden['bfloat16']}")


def make(out_dir, name, seed):
    make_config, dtype, old_spelling, shard = MODELS[name]
    model = transformers.AutoModelForCausalLM.from_config(
        make_config(), dtype=torch.float32, attn_implementation="eager"
    ).eval()
    randomise(model, dtype, seed)
    tokenizer = make_tokenizer()
    cases = [run(model, tokenizer, text) for text in prompts(model.config, tokenizer)]
    margins = [margin for case in cases for _, margin in case["greedy_logprob_and_margin"]]
    tokens = {token for case in cases for token in case["greedy_ids"]}
    print(f"{name}: {model.num_parameters()} parameters, {len(tokens)} different tokens, least margin {min(margins)}")

    folder = out_dir / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.generation_config = transformers.GenerationConfig(bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    if name in MULTIMODAL:
        wrap_as_multimodal(folder, MULTIMODAL[name])
    if old_spelling:
        spell_as_before(folder / "config.json")
    write_golden(folder, cases)


def main():
    torch.set_num_threads(1)
    if sys.argv[1] == "--rounding":
        for file in sorted(Path(sys.argv[2]).glob("*/golden.json")):
            write_golden(file.parent, json.loads(file.read_text())["cases"])
        return
    names = sys.argv[2:] or list(MODELS)
    for name in names:
        make(Path(sys.argv[1]), name, SEEDS.get(name, 100 + list(MODELS).index(name)))


if __name__ == "__main__":
    main()
