#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets into FOLDER/TARGET, from the tiny models of tests/golden and common/text.

usage: seeds.py FOLDER
"""
import hashlib
import io
import json
import pathlib
import struct
import sys

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "checkpoints"))
from gguf_file import gguf_bytes  # noqa: E402
from tensors import calls, legacy_bin, safetensors_bytes, safetensors_header, state_dict_pickle, write_bin  # noqa: E402

GOLDEN = sorted(config.parent for config in (ROOT / "tests" / "golden" / "data").glob("*/config.json"))
TINY = {"model.embed_tokens.weight": ("F32", [4, 2], bytes(32)),
        "model.layers.0.input_layernorm.weight": ("BF16", [2], bytes(4))}
# In the order of tests/fuzz/tokenizer_fuzz.cpp.
TOKENIZER_FILES = ["tokenizer.json", "tokenizer.model", "tekken.json"]

CONVERSATIONS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "<|im_end|>"}, {"role": "user", "content": [{"type": "text", "text": "ä"}]},
     {"role": "assistant", "content": None, "tool_calls": [
         {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"x": 1.0, "y": [None, True]}}}]},
     {"role": "tool", "content": "4", "tool_call_id": "abcdefghi", "name": "f"}],
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
TEMPLATES = [
    "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}",
    "{%- set ns = namespace(n=0) %}{% for m in messages if m.content is string %}{% set ns.n = ns.n + 1 %}"
    "{{ loop.index0 ~ m['content'][:3] }}{% if loop.last %}{% break %}{% endif %}{% endfor %}{{ ns.n }}",
    "{% macro f(x, y='a') %}{{ x | tojson(indent=2) }}{{ y.upper().split('A') }}{% endmacro %}{{ f(tools) }}",
    "{{ raise_exception('no') if messages | selectattr('role', 'equalto', 'x') | list | length else strftime_now('%d %b') }}",
    "{% generation %}{{ messages | map(attribute='role') | join(',') }}{% endgeneration %}{{ bos_token + eos_token }}",
    "{{ {'a': 1.0, 'b': [none, true]} | items | list }}{{ '%s' | format(1) }}{{ 'x' * 3 }}{{ 7 // 2 ** 3 % 5 }}",
]
BATCH = [
    {"prompt": "Once", "max_tokens": 4, "temperature": 0.5, "stop": ["a", "b"], "seed": 7},
    {"prompt_ids": [1, 2, 3], "logit_bias": {"5": -1.5}, "stop_token_ids": [7], "ignore_eos": True},
    {"messages": CONVERSATIONS[0], "n": 2, "logprobs": 3, "tools": json.dumps(TOOLS), "add_generation_prompt": False},
]

HTTP = [
    {"model": "m", "prompt": "Once", "max_tokens": 4, "stop": "x", "logprobs": 2, "echo": True, "stream": True,
     "stream_options": {"include_usage": True}, "logit_bias": {"5": -1.5}, "seed": -1},
    {"prompt": [[1, 2], "a"], "n": 2, "stop": ["a", "b"], "stop_token_ids": [7], "top_k": -1, "prompt_logprobs": 1, "best_of": 2},
    {"messages": CONVERSATIONS[0] + [{"role": "assistant", "content": [{"type": "text", "text": "It"}]}], "logprobs": True,
     "top_logprobs": 3, "max_completion_tokens": 5, "chat_template_kwargs": {"a": [1.0, None]}, "continue_final_message": True,
     "response_format": {"type": "text"}, "tools": [], "request_id": "r"},
    {"messages": [{"role": "assistant", "content": None, "reasoning_content": "Hm", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "name": "f", "content": "x"}],
     "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}],
     "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": False, "stream": True,
     "stream_options": {"json_events": ["/a", "/*/0"]}},
    {"prompt": "x", "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "null"}}}},
    {"prompt": "x", "structured_outputs": {"choice": ["a"], "disable_any_whitespace": False}, "guided_json": "{}"},
    {"system": [{"type": "text", "text": "x-anthropic-billing-header: a\nBe brief.", "cache_control": {"type": "ephemeral"}}],
     "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [
         {"type": "thinking", "thinking": "Hm", "signature": "s"}, {"type": "text", "text": "y"},
         {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1.0}}]},
         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "z"}]}]}],
     "tools": [{"name": "f", "input_schema": {"type": "object"}}, {"type": "bash_20250124", "name": "bash"}],
     "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True}, "max_tokens": 9, "stop_sequences": ["q"],
     "thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "low", "format": {
         "type": "json_schema", "schema": {"type": "object"}}}},
    {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]},
               {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}], "encrypted_content": "?"},
               {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
               {"type": "function_call_output", "call_id": "1", "output": "y"}, {"type": "web_search_call"}],
     "instructions": "i", "tools": [{"type": "function", "name": "f", "parameters": {}}, {"type": "mcp"}],
     "tool_choice": {"type": "allowed_tools", "mode": "required"}, "max_output_tokens": 9, "previous_response_id": "r",
     "reasoning": {"effort": "none"}, "text": {"format": {"type": "json_object"}}, "metadata": {"a": "b"}, "store": False},
]


def gguf(version):
    """Metadata with every type of value, an array of strings and one of numbers, and a tensor of F32 and one of
    Q8_0."""
    metadata = {"general.architecture": "llama", "general.alignment": ("u32", 32), "a.u8": ("u8", 1), "a.i8": ("i8", -1),
                "a.u16": ("u16", 513), "a.i16": ("i16", -2), "a.i32": ("i32", -1), "a.f32": ("f32", 1.5),
                "a.bool": ("bool", True), "a.u64": ("u64", 7), "a.i64": ("i64", -7), "a.f64": ("f64", 0.25),
                "a.strings": ["x", "yz"], "a.ints": ("i32", [1, 2])}
    return gguf_bytes(metadata, {"token_embd.weight": ("F32", [4, 2], bytes(32)),
                                 "output.weight": ("Q8_0", [1, 32], bytes(34))}, version)


def step_meta():
    """Two slots, one registration; the layout of worker/stage/step_meta.h."""
    def array(words):
        raw = struct.pack(f"<{len(words)}I", *words)
        return raw + bytes(-len(raw) % 16)

    # A v1::SlotSampling: temperature, top_k, seed, stop_ids [9], bias_ids [5], bias_values [1.], grammar: regex "a+", end id 9.
    sampling = (b"\x0d" + struct.pack("<f", .5) + b"\x10\x28\x28\x07\x52\x01\x09\x5a\x01\x05\x62\x04" + struct.pack("<f", 1)
                + b"\x7a\x09\x08\x02\x12\x02a+\x22\x01\x09")
    record = struct.pack("<5I", 3, 4, 4, 0, len(sampling))
    padded = sampling + bytes(-len(sampling) % 4)
    words = [1, 2, 3, 4, *struct.unpack(f"<{len(padded) // 4}I", padded)]
    arrays = array([1, 3]) + array([0, 0]) + array([4, 1]) + array([1, 0]) + array([1, 2, 3, 4])
    arrays += array([7, 8, 9, 10]) + array([5]) + record + bytes(-len(record) % 16) + array(words)
    header = struct.pack("<IIQQ9IHH", 0x4D534353, 4, 9, 1, 64 + len(arrays), 2, 2, 5, 4, 1, 1, len(words), 0, 64, 20)
    return header + arrays


def sentencepiece():
    """A tokenizer.model of a few pieces: repeated field 1 {piece, score, type}, then the trainer's model type BPE."""
    def piece(text, score, kind):
        raw = b"\x0a" + bytes([len(text.encode())]) + text.encode() + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind])
        return b"\x0a" + bytes([len(raw)]) + raw

    pieces = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3), *((f"<0x{b:02X}>", 0, 6) for b in range(256)),
              ("▁", -1, 1), ("a", -2, 1), ("b", -3, 1), ("▁a", -1, 1)]
    return b"".join(piece(*p) for p in pieces) + b"\x12\x02\x18\x02"


def tekken():
    import base64

    vocab = [{"rank": i, "token_bytes": base64.b64encode(bytes([i])).decode(), "token_str": None} for i in range(256)]
    return json.dumps({"config": {"pattern": "[^\\s]+|\\s+", "num_vocab_tokens": 256, "default_vocab_size": 258,
                                  "default_num_special_tokens": 2, "version": "v3"}, "vocab": vocab,
                       "special_tokens": [{"rank": 0, "token_str": "<unk>", "is_control": True},
                                          {"rank": 1, "token_str": "<s>", "is_control": True}]}).encode()


def http_requests():
    """A body with Content-Length, a chunked body, and both on one connection."""
    bodies = [json.dumps(body).encode() for body in HTTP]
    sized = [b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer k\r\nContent-Length: %d\r\n\r\n%s"
             % (len(body), body) for body in bodies]
    chunked = [b"POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
               b"%x\r\n%s\r\n1;x=y\r\n%s\r\n0\r\nT: v\r\n\r\n" % (len(body) - 1, body[:-1], body[-1:]) for body in bodies]
    yield from sized
    yield from chunked
    yield b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + chunked[0] + sized[1]


# The numbers are those of text::GrammarKind.
GRAMMARS = [
    (0, '{"type":"object","properties":{"a":{"type":"integer","minimum":0},"b":{"enum":["x",null]}},"required":["a"]}'),
    (0, '{"$ref":"#/$defs/d","$defs":{"d":{"anyOf":[{"type":"string","pattern":"^a+$","maxLength":4},{"items":{"$ref":"#"}}]}}}'),
    (0, '{"allOf":[{"required":["a"]},{"patternProperties":{"^x":{"type":"number","multipleOf":0.5}}}],"maxProperties":3}'),
    (128, '{"type":"array","prefixItems":[{"const":{"a":[1]}}],"minItems":1,"items":{"format":"date"}}'),
    (1, ""), (2, "(ab|[^a-z]{2,3})*\\d$"), (2, "(?i)x(y|z)+"), (3, '["a","ab","\\n"]'),
    (4, 'start: "<" item ("," item)* ">"\nitem: /[a-z]+/ | %json {"type":"null"}\n'),
    (4, 'start: a | b\na[suffix="!"]: /.*/\nb: "x"{2,3} <[0]>\n%ignore / /'),
]
# Flags of tests/fuzz/output_fuzz.cpp: 1 reasoning, 2 begins inside it, 4 tools, 8 several calls, 16 events, 32 a
# document without a fence, 64 and 128 the marks of reasoning. Then the family, in the order of router/text/tool_family.h.
OUTPUTS = [
    (1, 0, "<think>Hm</think>\n\nHello"), (3, 0, "Hm </b></think> Hi"),
    (17, 0, '<think>{}</think>```json\n{"answer": "a\\ud83d\\ude00"}\n```'),
    (48, 0, '{"answer":[1,{"a":"\\n"}],"x":null}'), (16, 0, 'As [1] says {x}: {"answer": "Hi", "a": {"a": 2}} bye'),
    (12, 0, '[TOOL_CALLS] [{"name": "f", "arguments": {"a": [1, "]"]}}, {"name": "g"}]'),
    (77, 1, '[THINK]a[/THINK][TOOL_CALLS]f[CALL_ID]abc[ARGS]{"a": 1}[TOOL_CALLS]g{}'),
    (13, 2, 'One <think>\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call> <tool_call>{"name": 1}</tool_call>'),
    (4, 2, '<tool_call>{"arguments": "{}", "function": {"name": "g"}}</tool_call>x'),
    (12, 3, '<|python_tag|>{"name": "f", "parameters": {}}; {"name": "other"}'),
    (12, 4, '<|python_start|>[f(s="a\\x41\\"", n=[1, {\'k\': None}], m=True), g()]<|python_end|> x'),
    (13, 5, "<think>\na\n</think>\n\n<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n<parameter=n>\n5\n"
            "</parameter>\n</function>\n</tool_call>"),
    (12, 6, "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a</arg_value>\n</tool_call>\n<tool_call>g</tool_call>"),
    (12, 7, '<minimax:tool_call>\n<invoke name="f">\n<parameter name="m">1</parameter>\n</invoke>\n</minimax:tool_call>'),
    (12, 8, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
    (12, 9, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>"),
    (141, 10, '<|channel>thought\na<channel|><|tool_call>call:f{s:<|"|>a<|"|>,o:{k:[1,true]}}<tool_call|>b'),
    (13, 11, "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f "
             "<|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>b"),
]


def seeds():
    """(target, bytes) of every seed."""
    tiny_data = b"".join(data for _, _, data in TINY.values())
    yield "safetensors", safetensors_bytes(safetensors_header(TINY), tiny_data)
    yield "safetensors", safetensors_bytes(safetensors_header(TINY) | {"__metadata__": {"format": "pt"}}, tiny_data)
    yield "index", json.dumps({"metadata": {"total_size": 36}, "weight_map": dict.fromkeys(TINY, "a.safetensors")}).encode()
    yield "index", json.dumps({"weight_map": {name: f"../{i}" for i, name in enumerate(TINY)}}).encode()
    with io.BytesIO() as file:
        write_bin(file, TINY)
        yield "torch", file.getvalue()
    yield "torch", legacy_bin()
    yield "pickle", state_dict_pickle(TINY)
    yield "pickle", state_dict_pickle(TINY, extra=calls("os", "system", "true"))
    yield "gguf", gguf(3)
    yield "gguf", gguf(2)
    for model in GOLDEN:
        yield "config", (model / "config.json").read_bytes()
        yield "config", (model / "generation_config.json").read_bytes()
    for adapter in (ROOT / "worker/loader/testdata/lora").glob("*/adapter_config.json"):
        yield "config", adapter.read_bytes()
    for template in TEMPLATES + [p.read_text() for m in GOLDEN for p in m.glob("*.jinja")]:
        yield "template", template.encode()
    for conversation in CONVERSATIONS:
        yield "messages", json.dumps(conversation, ensure_ascii=False).encode()
        yield "messages", json.dumps(conversation).encode() + b"\0" + json.dumps(TOOLS).encode()
    for file in [*(ROOT / "common/text/testdata").glob("*/tokenizer.json"), GOLDEN[0] / "tokenizer.json"]:
        if file.stat().st_size < 60_000:
            yield "tokenizer", b"\0" + file.read_bytes()
    yield "tokenizer", b"\1" + sentencepiece()
    yield "tokenizer", b"\2" + tekken()
    yield "step_meta", step_meta()
    for kind, source in GRAMMARS:
        yield "grammar", bytes([kind]) + source.encode()
    for line in (ROOT / "tests/cluster/data/json_schemas.jsonl").read_text().splitlines():
        yield "grammar", b"\0" + json.dumps(json.loads(line)["schema"]).encode()
    for flags, family, text in OUTPUTS:
        yield "output", bytes([flags, family]) + text.encode()
    for i, request in enumerate(http_requests()):
        yield "http", bytes([(0, 6, 63, 255)[i % 4]]) + request
    for line in BATCH:
        yield "batch_line", json.dumps(line).encode()


def main(folder):
    for target, content in seeds():
        into = pathlib.Path(folder) / target
        into.mkdir(parents=True, exist_ok=True)
        (into / hashlib.sha1(content).hexdigest()).write_bytes(content)


if __name__ == "__main__":
    main(sys.argv[1])
