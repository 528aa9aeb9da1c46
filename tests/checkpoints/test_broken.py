"""Checkpoints with the errors that users have. `stagecoach check` and `stagecoach serve` refuse each before any memory
for weights is allocated, with a message that tells the owner what to fix."""
import json
import struct

import pytest
from checkpoint import Checkpoint, check, refused_start
from gguf_file import gguf_bytes
from tensors import calls, legacy_bin, read_safetensors, safetensors_bytes, safetensors_header, state_dict_pickle

PEAK_BYTES = 200 << 20
EMBED = "model.embed_tokens.weight"
UP = "model.layers.0.mlp.up_proj.weight"


def header_and_data(model):
    return safetensors_header(model.tensors), b"".join(data for _, _, data in model.tensors.values())


def write_raw(model, header, data):
    model.path("model.safetensors").write_bytes(safetensors_bytes(header, data))


def cut_short(model):
    path = model.path("model.safetensors")
    path.write_bytes(path.read_bytes()[:-100])


def cut_in_the_header(model):
    path = model.path("model.safetensors")
    path.write_bytes(path.read_bytes()[:200])


def overlapping(model):
    header, data = header_and_data(model)
    begin, end = header[UP]["data_offsets"]
    header[UP]["data_offsets"] = [begin - 2, end - 2]
    write_raw(model, header, data)


def header_of_absurd_length(model):
    model.path("model.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}")


def header_over_100_mb(model):
    with open(model.path("model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", 100_000_001))
        file.truncate(200_000_000)


def header_no_json(model):
    write_raw(model, b"not JSON at all", b"")


def size_overflow(model):
    header, data = header_and_data(model)
    header[UP]["shape"] = [2**62, 2**62]
    write_raw(model, header, data)


def negative_shape(model):
    header, data = header_and_data(model)
    header[UP]["shape"] = [-1, -64]
    write_raw(model, header, data)


def size_not_shape_times_dtype(model):
    header, data = header_and_data(model)
    header[UP]["dtype"] = "F32"
    write_raw(model, header, data)


def index_names_a_file_outside(model):
    model.path("model.safetensors").rename(model.folder / "part.safetensors")
    model.write("model.safetensors.index.json", {"weight_map": dict.fromkeys(model.tensors, "../part.safetensors")})


def index_names_an_absent_file(model):
    model.path("model.safetensors").rename(model.folder / "part-1.safetensors")
    files = dict.fromkeys(model.tensors, "part-1.safetensors") | {UP: "part-2.safetensors"}
    model.write("model.safetensors.index.json", {"weight_map": files})


def git_lfs_pointer(model):
    model.path("model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123456789\n")


def tensors_missing(model):
    model.write_safetensors({n: t for n, t in model.tensors.items() if ".mlp.up_proj." not in n})


def layers_too_many(model):
    extra = {n.replace("layers.0.", "layers.9."): t for n, t in model.tensors.items() if "layers.0." in n}
    model.write_safetensors(model.tensors | extra)


def wrong_shape(model):
    model.set("config.json", intermediate_size=model.read("config.json")["intermediate_size"] + 8)


def wrong_dtype(model):
    header, data = header_and_data(model)
    for name, entry in header.items():
        if ".mlp.up_proj." in name:
            entry["dtype"] = "I16"
    write_raw(model, header, data)


def peft_leftovers(model):
    tensors = {}
    for name, tensor in model.tensors.items():
        if ".self_attn.q_proj." in name:
            stem = name.removesuffix(".weight")
            columns = tensor[1][1]
            tensors[f"base_model.model.{stem}.base_layer.weight"] = tensor
            tensors[f"base_model.model.{stem}.lora_A.default.weight"] = ("F32", [2, columns], bytes(8 * columns))
            tensors[f"base_model.model.{stem}.lora_B.default.weight"] = ("F32", [tensor[1][0], 2], bytes(8 * tensor[1][0]))
        else:
            tensors[f"base_model.model.{name}"] = tensor
    model.write_safetensors(tensors)


def vocabulary_above_the_embedding(model):
    model.set("config.json", vocab_size=model.read("config.json")["vocab_size"] + 1)


def vocabulary_below_the_embedding(model):
    model.set("config.json", vocab_size=model.read("config.json")["vocab_size"] - 4)


def a_token_without_a_row(model):
    tokenizer = model.read("tokenizer.json")
    rows = model.read("config.json")["vocab_size"]
    tokenizer["added_tokens"].append({"id": rows, "content": "<|im_start|>", "single_word": False, "lstrip": False,
                                      "rstrip": False, "normalized": False, "special": True})
    model.write("tokenizer.json", tokenizer)


def tokenizer_files_absent(model):
    model.remove("tokenizer.json")
    model.write("tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>"})


def tokenizer_no_json(model):
    model.write("tokenizer.json", "<html>404</html>")


def template_broken(model):
    model.write("chat_template.jinja", "line one\n{% for m in messages %}{{ m.content }")


def unsupported_architecture(model):
    model.set("config.json", architectures=["QwertyForCausalLM"])


def quantized_by_another(model):
    model.set("config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})


def config_of_nonsense(model):
    model.set("config.json", hidden_size="64", num_hidden_layers=-1, vocab_size=4000000000000)


def config_no_json(model):
    model.write("config.json", '{"architectures": [')


def bin_that_calls_a_function(model):
    model.write_bin(pickled=state_dict_pickle(model.tensors, extra=calls("posix", "system", f"touch {model.path('owned')}")))


def bin_that_evaluates(model):
    model.write_bin(pickled=state_dict_pickle(model.tensors, extra=calls("builtins", "eval", "1 + 1")))


def bin_of_the_old_format(model):
    model.write_bin()
    model.path("pytorch_model.bin").write_bytes(legacy_bin())


def bin_cut_short(model):
    model.write_bin()
    path = model.path("pytorch_model.bin")
    path.write_bytes(path.read_bytes()[:-300])


def bin_without_its_data(model):
    """The pickle names storages that are larger than those in the archive."""
    pickled = state_dict_pickle(model.tensors)
    model.write_bin({name: (dtype, shape, data[:-2]) for name, (dtype, shape, data) in model.tensors.items()},
                    pickled=pickled)


def bin_index_names_a_file_outside(model):
    model.write_bin()
    model.path("pytorch_model.bin").rename(model.folder / "part.bin")
    model.write("pytorch_model.bin.index.json", {"weight_map": dict.fromkeys(model.tensors, "/etc/part.bin")})


def bin_with_peft_leftovers(model):
    peft_leftovers(model)
    model.write_bin(read_safetensors(model.path("model.safetensors")))


def write_gguf(model, raw):
    """Replaces all files with one .gguf file."""
    for file in model.folder.iterdir():
        file.unlink()
    model.path("model.gguf").write_bytes(raw)


def gguf(architecture="llama"):
    return gguf_bytes({"general.architecture": architecture, f"{architecture}.block_count": ("u32", 1)},
                      {"token_embd.weight": ("F32", [4, 2], bytes(32))})


def gguf_cut_short(model):
    write_gguf(model, gguf()[:-40])


def gguf_of_counts_beyond_its_end(model):
    write_gguf(model, b"GGUF" + struct.pack("<IQQ", 3, 2**62, 2**62) + bytes(64))


def gguf_of_version_1(model):
    write_gguf(model, b"GGUF" + struct.pack("<I", 1) + bytes(64))


def gguf_unsupported_architecture(model):
    write_gguf(model, gguf("qwerty"))


def gguf_lacks_its_keys(model):
    write_gguf(model, gguf())


def no_weights(model):
    model.remove("model.safetensors")


# Damage: the words that the message must contain.
BROKEN = {
    cut_short: ["model.safetensors"],
    cut_in_the_header: ["model.safetensors", "cut short"],
    overlapping: ["overlap"],
    header_of_absurd_length: ["model.safetensors", "header of 9223372036854775808 bytes"],
    header_over_100_mb: ["header of 100000001 bytes"],
    header_no_json: ["model.safetensors", "JSON"],
    size_overflow: [UP],
    negative_shape: [UP],
    size_not_shape_times_dtype: [UP],
    index_names_a_file_outside: ["../part.safetensors", "not a file in this folder"],
    index_names_an_absent_file: ["part-2.safetensors"],
    git_lfs_pointer: ["git lfs pull"],
    tensors_missing: ["model.layers.{0-3}.mlp.up_proj.weight (4): missing"],
    layers_too_many: ["model.layers.9.", "num_hidden_layers"],
    wrong_shape: ["mlp.up_proj.weight", "has shape", "config.json needs", "{0-3}"],
    wrong_dtype: [".mlp.up_proj.weight", "I16", "F32, BF16 and F16"],
    peft_leftovers: ["LoRA", "base_model.model.", "merge_and_unload", "--merge-adapter"],
    vocabulary_above_the_embedding: [EMBED, "320", "no row", "resize_token_embeddings"],
    vocabulary_below_the_embedding: [EMBED, "set vocab_size to"],
    a_token_without_a_row: ["<|im_start|>", "no row", "resize_token_embeddings"],
    tokenizer_files_absent: ["tokenizer.json", "tokenizer_config.json", "Copy", "base model"],
    tokenizer_no_json: ["tokenizer.json", "JSON"],
    template_broken: ["chat_template.jinja", "2"],
    unsupported_architecture: ["QwertyForCausalLM", "supported are", "LlamaForCausalLM", "MistralForCausalLM"],
    quantized_by_another: ["bitsandbytes", "bfloat16"],
    config_of_nonsense: ["hidden_size", "num_hidden_layers", "vocab_size"],
    config_no_json: ["config.json"],
    bin_that_calls_a_function: ["pytorch_model.bin", "posix.system"],
    bin_that_evaluates: ["pytorch_model.bin", "builtins.eval"],
    bin_of_the_old_format: ["pytorch_model.bin", "torch.save"],
    bin_cut_short: ["pytorch_model.bin"],
    bin_without_its_data: ["pytorch_model.bin"],
    bin_index_names_a_file_outside: ["/etc/part.bin", "not a file in this folder"],
    bin_with_peft_leftovers: ["LoRA", "merge_and_unload", "--merge-adapter"],
    gguf_cut_short: ["model.gguf"],
    gguf_of_counts_beyond_its_end: ["model.gguf"],
    gguf_of_version_1: ["model.gguf", "version 1"],
    gguf_unsupported_architecture: ["qwerty", "supported are", "llama"],
    gguf_lacks_its_keys: ["llama.embedding_length"],
    no_weights: ["model.safetensors"],
}


@pytest.mark.parametrize("how", BROKEN, ids=lambda how: how.__name__)
def test_the_error_says_how_to_fix_it(how, tmp_path):
    model = Checkpoint(tmp_path)
    how(model)
    verdict = check(tmp_path)
    print(verdict.text)
    assert verdict.code == 1
    for word in BROKEN[how]:
        assert word in verdict.words
    assert all(len(line) <= 100 for line in verdict.text.splitlines() if "/" not in line)
    assert verdict.peak_bytes < PEAK_BYTES
    report = refused_start(tmp_path)
    assert not model.path("owned").exists()
    assert verdict.words.startswith(" ".join(report.removeprefix("error:").split()))


def test_all_problems_are_reported_at_once(tmp_path):
    model = Checkpoint(tmp_path)
    for how in (wrong_shape, tokenizer_files_absent, template_broken):
        how(model)
    verdict = check(tmp_path)
    for how in (wrong_shape, tokenizer_files_absent, template_broken):
        for word in BROKEN[how]:
            assert word in verdict.words, verdict.text
    report = json.loads(check(tmp_path, "--json").text)
    assert not report["ok"]
    assert [problem["part"] for problem in report["problems"]][-3:] == ["tensors", "template", "tokenizer"]


def test_a_valid_checkpoint_is_accepted(tmp_path):
    Checkpoint(tmp_path)
    verdict = check(tmp_path)
    assert verdict.code == 0, verdict.text
    assert "can be served" in verdict.text
    report = json.loads(check(tmp_path, "--json", "--stages", "2").text)
    assert report["ok"] and report["problems"] == [] and report["notes"] == []
    assert report["layers"] == sum(stage["layers"] for stage in report["stages"]) == 4
    assert report["dtype"] == "bfloat16" and report["chat_template"]


@pytest.mark.parametrize("broken", [False, True])
def test_checking_a_large_model_takes_little_memory(broken, tmp_path):
    """Llama-70B's shapes in a sparse file of 140 GB: the check uses only megabytes of memory."""
    model = Checkpoint(tmp_path)
    hidden, width, heads, kv_heads, layers, vocab = 8192, 28672, 64, 8, 80, 32000
    model.set("config.json", hidden_size=hidden, intermediate_size=width, num_attention_heads=heads,
              num_key_value_heads=kv_heads, head_dim=128, num_hidden_layers=layers, vocab_size=vocab)
    shapes = {EMBED: [vocab, hidden], "model.norm.weight": [hidden], "lm_head.weight": [vocab, hidden]}
    for i in range(layers):
        layer = f"model.layers.{i}."
        shapes |= {layer + "input_layernorm.weight": [hidden], layer + "post_attention_layernorm.weight": [hidden],
                   layer + "self_attn.q_proj.weight": [hidden, hidden],
                   layer + "self_attn.k_proj.weight": [kv_heads * 128, hidden],
                   layer + "self_attn.v_proj.weight": [kv_heads * 128, hidden],
                   layer + "self_attn.o_proj.weight": [hidden, hidden],
                   layer + "mlp.gate_proj.weight": [width, hidden], layer + "mlp.up_proj.weight": [width, hidden],
                   layer + "mlp.down_proj.weight": [hidden, width]}
    if broken:
        shapes["model.layers.79.mlp.down_proj.weight"] = [width, hidden]
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    raw = safetensors_bytes(header, b"")
    with open(model.path("model.safetensors"), "wb") as file:
        file.write(raw)
        file.truncate(len(raw) + at)
    verdict = check(tmp_path)
    assert verdict.peak_bytes < PEAK_BYTES
    assert verdict.code == int(broken), verdict.text
    if broken:
        assert "model.layers.79.mlp.down_proj.weight" in verdict.words
    else:
        assert "68.98 billion" in verdict.words
        assert json.loads(check(tmp_path, "--json").text)["kv_bytes_per_token"] == 2 * layers * kv_heads * 128 * 2


def test_an_lm_head_beside_tied_embeddings_is_a_note(tmp_path):
    model = Checkpoint(tmp_path, "opt")
    embed = next(tensor for name, tensor in model.tensors.items() if name.endswith("embed_tokens.weight"))
    model.write_safetensors(model.tensors | {"lm_head.weight": embed})
    verdict = check(tmp_path)
    assert verdict.code == 0, verdict.text
    assert "lm_head.weight" in verdict.words and "ignored" in verdict.words
