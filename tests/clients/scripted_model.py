"""A checkpoint that says what a test wants, however long the prompt is: for clients that need a model which calls their
tools.

It is a table of which token follows which. Each reply is cut into pieces of a few characters, and each piece is an added
token with a dimension of its own in the hidden state. The last token's dimension alone decides the next token: the
weights of attention and MLP are zero. The chat template chooses the reply, and begins it with the reply's first token.
The vocabulary is otherwise the demo model's, and a window keeps long prompts cheap. Such a model says nothing about
attention or the KV cache; tests/golden does.
"""
import json
import pathlib
import struct

from harness import DEMO_MODEL
from tensors import write_safetensors

CONTEXT = 65536
WINDOW = 256
HIDDEN = 256
LAYERS = 2
N_VOCAB = 2048
PIECE = 6  # characters
END = 2  # the demo model's <|end|>

# The spelling of calls and reasoning is that of Hermes and Qwen.
TEMPLATE = """{{ bos_token }}
{%- set names = tools | default([], true) | map(attribute='function.name') | list %}
{%- if tools %}{{ '<|system|>' + (tools | tojson) + eos_token }}{% endif %}
{%- for message in messages %}
    {%- set role = message.role if message.role in ['system', 'user', 'assistant'] else 'user' %}
    {{- '<|' + role + '|>' }}
    {%- if message.role == 'tool' %}{{ 'tool_response ' }}{% endif %}
    {%- if message.reasoning_content %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}
    {{- message.content or '' }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>' + call.function.name + ' ' + (call.function.arguments | tojson) + '</tool_call>' }}
    {%- endfor %}
    {{- eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>
    {%- RULES %}
{%- endif %}
"""


def call(name, arguments):
    """The text of a tool call."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def _pieces(text, taken):
    """Cuts a text into short pieces that differ from each other and from all in `taken`; None if there is no such cut."""
    if not text:
        return []
    for size in range(min(PIECE, len(text)), len(text) + 1):
        if text[:size] not in taken:
            rest = _pieces(text[size:], taken | {text[:size]})
            if rest is not None:
                return [text[:size], *rest]
    return None


def write(folder, rules, context=CONTEXT, spelling=""):
    """Writes the checkpoint. `rules`: [(condition, reply)]; the first condition that is true for the template's
    variables, among them `names`, the names of the tools, decides which reply the model gives. `spelling`: marks of
    another model family, for a comment in the template, by which the server knows how replies spell calls. Calls of
    earlier turns have no marks then."""
    folder = pathlib.Path(folder)
    tokenizer = json.loads((DEMO_MODEL / "tokenizer.json").read_text())
    taken = set(tokenizer["model"]["vocab"])
    first_added = len(taken)
    added, follows, branches = [], {}, []
    for n, (condition, reply) in enumerate(rules):
        chain = [f"<|reply_{n}|>", *_pieces(reply, taken)]
        taken |= set(chain)
        ids = [first_added + len(added) + i for i in range(len(chain))]
        added += [{"id": id_, "content": text, "special": i == 0, "single_word": False, "lstrip": False, "rstrip": False,
                   "normalized": False} for i, (id_, text) in enumerate(zip(ids, chain))]
        follows |= dict(zip(ids, [*ids[1:], END]))
        branches.append(f"{'elif' if n else 'if'} {condition} %}}{{{{- '{chain[0]}' }}}}{{%- ")
    tokenizer["added_tokens"] += added
    assert len(added) <= HIDDEN and first_added + len(added) <= N_VOCAB, "too many tokens in the replies"

    def matrix(n_rows, n_columns, entries=()):
        """bfloat16: zero, but for `entries` [(row, column, value)]."""
        data = bytearray(2 * n_rows * n_columns)
        for row, column, value in entries:
            at = 2 * (row * n_columns + column)
            data[at : at + 2] = struct.pack("<f", value)[2:]
        return "BF16", [n_rows, n_columns], bytes(data)

    ones = ("BF16", [HIDDEN], struct.pack("<f", 1.0)[2:] * HIDDEN)
    tensors = {"model.embed_tokens.weight": matrix(N_VOCAB, HIDDEN, [(token, token - first_added, 1.0) for token in follows]),
               "lm_head.weight": matrix(N_VOCAB, HIDDEN, [(to, token - first_added, 4.0) for token, to in follows.items()]),
               "model.norm.weight": ones}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        tensors |= {at + "input_layernorm.weight": ones, at + "post_attention_layernorm.weight": ones}
        for name, n_rows, n_columns in [("self_attn.q_proj", HIDDEN, HIDDEN), ("self_attn.k_proj", 64, HIDDEN),
                                        ("self_attn.v_proj", 64, HIDDEN), ("self_attn.o_proj", HIDDEN, HIDDEN),
                                        ("mlp.gate_proj", 64, HIDDEN), ("mlp.up_proj", 64, HIDDEN),
                                        ("mlp.down_proj", HIDDEN, 64)]:
            tensors[f"{at}{name}.weight"] = matrix(n_rows, n_columns)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in ("tokenizer_config.json", "generation_config.json"):
        (folder / name).write_text((DEMO_MODEL / name).read_text())
    template = TEMPLATE.replace("{%- RULES %}", "{%- " + "".join(branches) + "endif %}")
    if spelling:
        template = f"{{#- {spelling} -#}}\n" + template.replace("<tool_call>", "").replace("</tool_call>", "")
    (folder / "chat_template.jinja").write_text(template)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "vocab_size": N_VOCAB, "hidden_size": HIDDEN,
        "intermediate_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": HIDDEN // 64, "num_key_value_heads": 1,
        "head_dim": 64, "sliding_window": WINDOW, "max_position_embeddings": context, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": END, "dtype": "bfloat16"}))
    return folder
