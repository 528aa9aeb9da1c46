"""The owner of a web shop's chatbot brings a fine-tuned Mistral exactly as the training left it. It is a .bin
checkpoint with leftovers of the adapter, a tokenizer_config.json without its files, and one token more than the
embedding has rows. The first check reports all problems at once, each with its fix; the repaired checkpoint answers.
The model is a tiny Mistral: N tokens instead of 32,768."""
import json
import pathlib

import grpc
import pytest
from checkpoint import Checkpoint, check, refused_start
from harness import Cluster
from stagecoach.v1 import inference_pb2 as pb

TEMPLATE = (pathlib.Path(__file__).parent / "chatbot_template.jinja").read_text()
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
LORA_TARGETS = (".self_attn.q_proj.weight", ".self_attn.v_proj.weight")


def with_leftovers(tensors, rank=4):
    """The tensors of a peft model that is saved without merging."""
    saved = {}
    for name, (dtype, shape, data) in tensors.items():
        stem = f"base_model.model.{name}"
        if name.endswith(LORA_TARGETS):
            stem = stem.removesuffix(".weight")
            rows, columns = shape
            saved[f"{stem}.base_layer.weight"] = (dtype, shape, data)
            saved[f"{stem}.lora_A.default.weight"] = ("F32", [rank, columns], bytes(4 * rank * columns))
            saved[f"{stem}.lora_B.default.weight"] = ("F32", [rows, rank], bytes(4 * rows * rank))
        else:
            saved[stem] = (dtype, shape, data)
    return saved


def with_one_row_more(tensors):
    """Adds a row like resize_token_embeddings; the new row is a copy of the last one."""
    resized = dict(tensors)
    for name in (EMBED, HEAD):
        dtype, (rows, columns), data = tensors[name]
        resized[name] = (dtype, [rows + 1, columns], data + data[-len(data) // rows:])
    return resized


def with_a_pad_token(tokenizer, token_id):
    pad = {"id": token_id, "content": "[PAD]", "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": True}
    return tokenizer | {"added_tokens": [*tokenizer["added_tokens"], pad]}


def problems(folder):
    """{part: text} of the problems that prevent serving. `serve` reports the same and leaves no process behind."""
    report = json.loads(check(folder, "--json").text)
    assert not report["ok"]
    said = " ".join(refused_start(folder).split())
    for problem in report["problems"]:
        assert " ".join(problem["text"].split()) in said
    return {problem["part"]: problem["text"] for problem in report["problems"]}


def greedy(stub, **prompt):
    sampling = pb.SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    call, request = ((stub.Chat, pb.ChatRequest) if "messages" in prompt else (stub.Generate, pb.GenerateRequest))
    return [token for message in call(request(sampling=sampling, **prompt)) for token in message.token_ids]


def test_all_problems_are_reported_and_the_fixed_model_serves(tmp_path):
    folder = tmp_path / "shop-mistral"
    folder.mkdir()
    model = Checkpoint(folder)
    model.write("chat_template.jinja", TEMPLATE)
    tokenizer = model.read("tokenizer.json")
    n = model.read("config.json")["vocab_size"]
    assert model.tensors[EMBED][1][0] == n

    # The checkpoint as the training left it: all problems are reported at once.
    model.write_bin(with_leftovers(model.tensors))
    model.remove("tokenizer.json")
    model.write("tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>",
                                          "pad_token": "[PAD]"})
    found = problems(folder)
    assert set(found) == {"tensors", "tokenizer"}
    for word in ("LoRA", "base_model.model.", "merge_and_unload", "--merge-adapter"):
        assert word in found["tensors"]
    for word in ("tokenizer_config.json", "tokenizer.json", "Copy these files from the base model"):
        assert word in found["tokenizer"]

    # After the adapter is merged, the .bin file is accepted.
    model.write_bin()
    assert set(problems(folder)) == {"tokenizer"}

    # The tokenizer is copied from the training's folder with its pad token: id N, but there are only N rows.
    model.write("tokenizer.json", with_a_pad_token(tokenizer, n))
    found = problems(folder)
    assert set(found) == {"tokenizer"}
    for word in ("[PAD]", str(n), "resize_token_embeddings"):
        assert word in found["tokenizer"]

    # If only config.json gets the new vocab_size, the embedding lacks the row.
    model.set("config.json", vocab_size=n + 1)
    found = problems(folder)
    assert set(found) == {"tensors"}

    # After the embedding is resized, the .bin model answers, on two stages.
    model.write_bin(with_one_row_more(model.tensors))
    verdict = check(folder)
    assert verdict.code == 0, verdict.text
    turns = [("system", "Be brief."), ("user", "Is it in stock?"), ("assistant", "Yes."), ("user", "Send [PAD] two </s>!")]
    messages = [pb.ChatMessage(role=role, content=content) for role, content in turns]
    with Cluster(folder, stages=2) as cluster:
        rendered = cluster.stub.Tokenize(pb.TokenizeRequest(chat=pb.ChatRequest(messages=messages)))
        assert rendered.text == ("<s>[INST] Is it in stock?[/INST] Yes.</s>"
                                 "[INST] Be brief.\n\nSend [PAD] two </s>![/INST]")
        # The visitor's message is encoded as plain text: there is one BOS, one EOS and no pad token.
        ids = list(rendered.token_ids)
        assert [ids.count(special) for special in (1, 2, n)] == [1, 1, 0]
        answer = greedy(cluster.stub, messages=messages)
        assert len(answer) == 12
        assert answer == greedy(cluster.stub, tokens=pb.TokenIds(ids=ids))
        with pytest.raises(grpc.RpcError) as error:
            greedy(cluster.stub, messages=messages[:1] + messages[2:])
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "roles must alternate" in error.value.details()

    # The same weights as safetensors give the same tokens.
    model.remove("pytorch_model.bin")
    model.write_safetensors(with_one_row_more(model.tensors))
    with Cluster(folder) as cluster:
        assert greedy(cluster.stub, messages=messages) == answer


def test_the_adapter_is_merged_during_loading(tmp_path):
    """The other fix keeps the leftovers and adds the folder with the adapter's settings. B is zero, as before the first
    training step, so the answer is the base model's."""
    folder, adapter = tmp_path / "shop-mistral", tmp_path / "adapter"
    folder.mkdir()
    adapter.mkdir()
    model = Checkpoint(folder)
    prompt = pb.TokenIds(ids=[1, 30, 40, 50])
    with Cluster(folder) as cluster:
        answer = greedy(cluster.stub, tokens=prompt)
    model.write_bin(with_leftovers(model.tensors))
    (adapter / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}))
    assert "--merge-adapter" in problems(folder)["tensors"]
    verdict = check(folder, "--merge-adapter", str(adapter))
    assert verdict.code == 0, verdict.text
    with Cluster(folder, stages=2, flags=["--merge-adapter", str(adapter)]) as cluster:
        assert greedy(cluster.stub, tokens=prompt) == answer
