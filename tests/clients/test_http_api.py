"""Compares the answers of the HTTP paths with those of gRPC and with OpenAI's API."""
import json
import os
import re
import signal

import pytest
from harness import DEMO_MODEL, Cluster, children_of
from openapi_spec_validator import validate
from stagecoach.v1 import inference_pb2 as pb
from wire import Reader, ask, connection, metric, request_bytes, wait_for

GREEDY = {"temperature": 0, "max_tokens": 12}
MESSAGES = [{"role": "user", "content": "When does the first coach leave Greywell?"}]


def complete(cluster, **body):
    response = ask(cluster.http, "POST", "/v1/completions", {**GREEDY, **body})
    assert response.status == 200, response.body
    return response.json


def refused(cluster, path="/v1/completions", status=400, **body):
    response = ask(cluster.http, "POST", path, body)
    assert response.status == status, response.body
    return response.error


def test_the_same_tokens_as_over_grpc(cluster):
    sampling = pb.SamplingParams(temperature=0.8, seed=11, max_tokens=20, top_k=50, repetition_penalty=1.1)
    request = pb.ChatRequest(messages=[pb.ChatMessage(**m) for m in MESSAGES], sampling=sampling)
    ids, text = [], ""
    for message in cluster.stub.Chat(request):
        ids += message.token_ids
        text += message.text
    answer = ask(cluster.http, "POST", "/v1/chat/completions", {
        "model": "demo-model", "messages": MESSAGES, "temperature": 0.8, "seed": 11, "max_completion_tokens": 20,
        "top_k": 50, "repetition_penalty": 1.1, "return_token_ids": True}).json
    choice = answer["choices"][0]
    assert choice["token_ids"] == ids
    assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
    assert answer["usage"]["completion_tokens"] == len(ids)
    assert answer["usage"]["prompt_tokens"] == len(answer["prompt_token_ids"])
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert answer["object"] == "chat.completion" and answer["id"].startswith("chatcmpl-")


def test_prompts_in_every_form(cluster):
    text = "The coach leaves"
    ids = ask(cluster.http, "POST", "/tokenize", {"prompt": text}).json["tokens"]
    one = complete(cluster, prompt=text)["choices"][0]["text"]
    other = complete(cluster, prompt="A single ticket")["choices"][0]["text"]
    assert complete(cluster, prompt=ids)["choices"][0]["text"] == one
    for prompts in ([text, "A single ticket"], [ids, ask(cluster.http, "POST", "/tokenize",
                                                         {"prompt": "A single ticket"}).json["tokens"]]):
        answer = complete(cluster, prompt=prompts, n=2)
        assert [(c["index"], c["text"]) for c in answer["choices"]] == [(0, one), (1, one), (2, other), (3, other)]
        assert answer["usage"]["completion_tokens"] <= 48
    streamed = ask(cluster.http, "POST", "/v1/completions", {**GREEDY, "prompt": [text, "A single ticket"], "stream": True})
    texts = ["", ""]
    for event in streamed.events[:-1]:
        texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert texts == [one, other]
    assert len(complete(cluster, prompt=text, max_tokens=None, ignore_eos=True, return_token_ids=True)
               ["choices"][0]["token_ids"]) == 16


def test_completion_logprobs_and_echo(cluster):
    plain = complete(cluster, prompt="The coach", logprobs=3, max_tokens=6, ignore_eos=True)["choices"][0]
    logprobs = plain["logprobs"]
    assert {len(logprobs[key]) for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")} == {6}
    assert "".join(logprobs["tokens"]).startswith(plain["text"][:5])
    for token, value, top in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]):
        assert top[token] == value == max(top.values())
        assert 3 <= len(top) <= 4
    echo = complete(cluster, prompt="The coach", logprobs=3, max_tokens=6, ignore_eos=True, echo=True)["choices"][0]
    n_prompt = len(echo["logprobs"]["tokens"]) - 6
    assert echo["text"] == "The coach" + plain["text"]
    assert echo["logprobs"]["tokens"][n_prompt:] == logprobs["tokens"]
    assert echo["logprobs"]["token_logprobs"][0] is None
    assert all(value <= 0 for value in echo["logprobs"]["token_logprobs"][1:])
    assert echo["logprobs"]["text_offset"][n_prompt] == len("The coach")
    # The request of evaluation harnesses: only the prompt's log-probabilities.
    only = complete(cluster, prompt="The coach", logprobs=3, max_tokens=0, echo=True)
    assert only["choices"][0]["text"] == "The coach"
    assert only["choices"][0]["logprobs"]["token_logprobs"] == echo["logprobs"]["token_logprobs"][:n_prompt]
    assert only["usage"]["completion_tokens"] == 0
    streamed = ask(cluster.http, "POST", "/v1/completions", {
        "prompt": "The coach", "logprobs": 3, "max_tokens": 6, "ignore_eos": True, "echo": True, "temperature": 0,
        "stream": True}).events[:-1]
    assert "".join(e["choices"][0]["text"] for e in streamed) == echo["text"]
    for key in ("tokens", "token_logprobs", "text_offset"):
        assert [v for e in streamed for v in e["choices"][0]["logprobs"][key]] == echo["logprobs"][key]


def test_prompt_logprobs(cluster):
    answer = ask(cluster.http, "POST", "/v1/chat/completions", {**GREEDY, "messages": MESSAGES, "prompt_logprobs": 1}).json
    first, *rest = answer["prompt_logprobs"]
    assert first is None and len(rest) == answer["usage"]["prompt_tokens"] - 1
    assert all(1 <= len(position) <= 2 for position in rest)
    assert {"logprob", "rank", "decoded_token"} == set(next(iter(rest[0].values())))


def test_stop_strings_and_tokens(cluster):
    text = complete(cluster, prompt="The coach leaves", max_tokens=20, ignore_eos=True)["choices"][0]["text"]
    word = text.split()[2]
    stopped = complete(cluster, prompt="The coach leaves", max_tokens=20, ignore_eos=True, stop=word)["choices"][0]
    assert stopped["text"] == text[:text.index(word)]
    assert stopped["finish_reason"] == "stop" and stopped["stop_reason"] == word
    ids = complete(cluster, prompt="The coach leaves", max_tokens=20, return_token_ids=True)["choices"][0]["token_ids"]
    stopped = complete(cluster, prompt="The coach leaves", max_tokens=20, stop_token_ids=[ids[3]])["choices"][0]
    assert stopped["stop_reason"] == ids[3]
    at_length = complete(cluster, prompt="The coach leaves", max_tokens=2, ignore_eos=True)["choices"][0]
    assert at_length["finish_reason"] == "length" and at_length["stop_reason"] is None


def test_continue_final_message(cluster):
    whole = ask(cluster.http, "POST", "/v1/chat/completions", {**GREEDY, "messages": MESSAGES, "max_tokens": 300}).json
    text = whole["choices"][0]["message"]["content"]
    half = text[:text.index(" ", len(text) // 2)]
    rest = ask(cluster.http, "POST", "/v1/chat/completions", {
        **GREEDY, "max_tokens": 300, "messages": MESSAGES + [{"role": "assistant", "content": half}],
        "continue_final_message": True, "add_generation_prompt": False}).json
    assert half + rest["choices"][0]["message"]["content"] == text


def test_tokenize_and_detokenize(cluster):
    text = "Der Zug fährt um 8 <|im_end|>"
    answer = ask(cluster.http, "POST", "/tokenize", {"prompt": text, "return_token_strs": True}).json
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert answer["max_model_len"] == 2048
    chat = ask(cluster.http, "POST", "/tokenize", {"messages": MESSAGES}).json
    assert chat["token_strs"] is None
    usage = ask(cluster.http, "POST", "/v1/chat/completions", {**GREEDY, "messages": MESSAGES}).json["usage"]
    assert chat["count"] == usage["prompt_tokens"]
    plain = ask(cluster.http, "POST", "/tokenize", {"prompt": text, "add_special_tokens": False}).json["tokens"]
    assert ask(cluster.http, "POST", "/detokenize", {"tokens": plain}).json == {"prompt": text}
    assert refused(cluster, "/tokenize")["param"] == "prompt"
    assert refused(cluster, "/detokenize", tokens=[1, 10**6])["param"] == "tokens[1]"
    assert refused(cluster, "/detokenize", tokens=["a"])["param"] == "tokens[0]"


def test_models_status_version(cluster):
    models = ask(cluster.http, "GET", "/v1/models").json
    assert models["object"] == "list"
    assert [m["id"] for m in models["data"]] == ["demo-model"]
    assert ask(cluster.http, "GET", "/v1/models/demo-model").json == models["data"][0]
    assert ask(cluster.http, "GET", "/v1/models/demo%2Dmodel").json == models["data"][0]
    missing = ask(cluster.http, "GET", "/v1/models/gpt-4")
    assert missing.status == 404 and missing.error["code"] == "model_not_found"
    status = ask(cluster.http, "GET", "/status").json
    assert sum(stage["n_layers"] for stage in status["stages"]) == 8
    assert len(status["stages"]) == 2
    assert all(stage["compute_ms"] > 0 for stage in status["stages"])
    assert status["kv"]["groups"][0]["total_blocks"] == cluster.kv_blocks
    assert ask(cluster.http, "GET", "/version").json["name"] == "stagecoach"
    assert metric(cluster.http, "stagecoach_http_responses_total", status="200") > 0
    assert metric(cluster.http, "vllm:generation_tokens_total") > 0


def test_openapi_lists_all_served_paths(cluster):
    document = ask(cluster.http, "GET", "/openapi.json").json
    validate(document)
    ask(cluster.http, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "stream": True, "request_id": "listed",
                                                 "stream_options": {"resumable": True}})
    ask(cluster.http, "POST", "/v1/responses", {"input": "x", "max_output_tokens": 1, "request_id": "kept"})
    for path, methods in document["paths"].items():
        listed = "resp_kept" if path.startswith("/v1/responses") else "listed"
        for method in (name for name in methods if name != "parameters"):
            target = path.replace("{model}", "demo-model").replace("{id}", listed)
            answer = ask(cluster.http, method.upper(), target, {} if method == "post" else None)
            assert answer.status in (200, 400), (path, method)
        if "{" not in path:
            assert ask(cluster.http, "PUT", path).status == 405
    properties = document["components"]["schemas"]["Common"]["properties"]
    for name in properties:  # each is known: a value of a wrong type is refused by name
        if name in ("request_id", "cache_salt", "model", "guided_regex", "guided_grammar", "regex"):
            wrong = 5
        else:
            wrong = {"x": {}} if name in ("logit_bias", "stream_options") else "wrong"
        if name in ("stop", "stream_options"):
            continue
        assert refused(cluster, prompt="x", **{name: wrong})["param"].startswith(name)


BAD = [
    ({}, "prompt"),
    ({"prompt": ""}, None),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[1], [-5]]}, "prompt[1][0]"),
    ({"prompt": [5, 10**6]}, "prompt[1]"),
    ({"prompt": "x", "temperature": -1}, "temperature"),
    ({"prompt": "x", "temperature": "hot"}, "temperature"),
    ({"prompt": "x", "top_p": 1.5}, "top_p"),
    ({"prompt": "x", "top_k": -2}, "top_k"),
    ({"prompt": "x", "min_p": 2}, "min_p"),
    ({"prompt": "x", "top_n_sigma": -2}, "top_n_sigma"),
    ({"prompt": "x", "n": 0}, "n"),
    ({"prompt": "x", "n": 1000}, "n"),
    ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
    ({"prompt": "x", "max_tokens": -1}, "max_tokens"),
    ({"prompt": "x", "max_tokens": 10**9}, "max_tokens"),
    ({"prompt": "x", "min_tokens": 99}, "min_tokens"),
    ({"prompt": "x", "stop": [""]}, "stop[0]"),
    ({"prompt": "x", "stop": ""}, "stop"),
    ({"prompt": "x", "stop": ["a"] * 17}, "stop"),
    ({"prompt": "x", "stop_token_ids": [10**6]}, "stop_token_ids"),
    ({"prompt": "x", "logit_bias": {"1": 101}}, "logit_bias[1]"),
    ({"prompt": "x", "logit_bias": {"x": 1}}, "logit_bias"),
    ({"prompt": "x", "logprobs": 21}, "logprobs"),
    ({"prompt": "x", "presence_penalty": 3}, "presence_penalty"),
    ({"prompt": "x", "frequency_penalty": -3}, "frequency_penalty"),
    ({"prompt": "x", "repetition_penalty": 0}, "repetition_penalty"),
    ({"prompt": "x", "stream": 1}, "stream"),
    ({"prompt": "x", "stream_options": {}}, "stream_options"),
    ({"prompt": "x", "suffix": "y"}, "suffix"),
    ({"prompt": "x", "guided_json": {"type": 5}}, "guided_json"),
    ({"prompt": "x", "tools": [{}]}, "tools"),
    ({"prompt": "x", "functions": [{}]}, "functions"),
    ({"prompt": "x", "n_predict": 0}, "n_predict"),
    ({"prompt": "x", "regex": "("}, "regex"),
    ({"prompt": "x", "response_format": {"type": "json_object", "schema": {"type": 5}}}, "response_format.schema"),
    ({"prompt": "x", "stream": True, "stream_options": {"include_usages": True}}, "stream_options.include_usages"),
    *(({"prompt": "x", name: value}, name) for name, value in {
        "grammar": "root ::= x", "ebnf": "root ::= x", "mirostat": 2, "typical_p": 0.9, "dry_multiplier": 0.8,
        "xtc_probability": 0.5, "no_repeat_ngram_size": 3, "lora_request": {"name": "a"}, "length_penalty": 2, "num_beams": 2,
        "repeat_penalty": 1.1, "do_sample": False, "options": {"num_predict": 5}, "messages": [{}],
        "enable_thinking": True, "watermark": True, "stop_regex": "x", "temp": 0, "topk": 1, "random_seed": 3, "min_new_tokens": 5,
        "num_return_sequences": 2, "stop_strings": ["x"], "stopping_strings": ["x"], "suppress_tokens": [1], "bad_words_ids": [[1]],
        "guided_decoding": {"regex": "7"}, "json_mode": True, "response_schema": {"const": 7}, "rep_pen": 1.2,
        "logits_processor": [1], "lora_adapter": "x", "top_logprobs_num": 3}.items()),
]


@pytest.mark.parametrize("body, param", BAD, ids=[json.dumps(body)[:60] for body, _ in BAD])
def test_errors_name_bad_fields(cluster, body, param):
    if param is None:
        assert ask(cluster.http, "POST", "/v1/completions", body).status in (200, 400)
        return
    error = refused(cluster, **body)
    assert error["param"] == param
    assert error["message"].startswith(param)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("body, param, code", [
    ({"messages": []}, "messages", None),
    ({"messages": [{"role": "", "content": "x"}]}, "messages[0].role", None),
    ({"messages": [{"role": "user"}]}, "messages[0].content", None),
    ({"messages": MESSAGES, "top_logprobs": 2}, "top_logprobs", None),
    ({"messages": MESSAGES, "logprobs": True, "top_logprobs": 99}, "top_logprobs", None),
    ({"messages": MESSAGES, "max_completion_tokens": 0}, "max_completion_tokens", None),
    ({"messages": MESSAGES, "max_tokens": 9999}, "max_tokens", "context_length_exceeded"),
    ({"messages": [{"role": "user", "content": "word " * 5000}]}, "messages", "context_length_exceeded"),
    ({"messages": MESSAGES, "response_format": {"type": "xml"}}, "response_format", None),
    ({"messages": MESSAGES, "thinking": {"type": "enabled"}}, "thinking", None),
    ({"messages": MESSAGES, "think": False}, "think", None),
    ({"messages": MESSAGES, "enable_thinking": 1}, "enable_thinking", None),
    ({"messages": [{**MESSAGES[0], "images": ["x"]}]}, "messages[0].images", None),
    ({"messages": MESSAGES, "continue_final_message": True, "add_generation_prompt": True}, "continue_final_message", None),
])
def test_errors_name_bad_chat_fields(cluster, body, param, code):
    error = refused(cluster, "/v1/chat/completions", **body)
    assert error["param"].startswith(param)
    assert error["code"] == code


def test_values_without_effect_are_accepted(cluster):
    nothing = {"mirostat": 0, "typical_p": 1, "typical": 1.0, "dry_multiplier": 0, "xtc_probability": 0.0,
               "no_repeat_ngram_size": 0, "length_penalty": 1.0, "lora_request": None, "grammar": None, "ebnf": "",
               "use_beam_search": False, "do_sample": True, "logits_processors": [], "thinking": None, "options": {}}
    body = {"messages": MESSAGES, "max_tokens": 1, **nothing}
    assert ask(cluster.http, "POST", "/v1/chat/completions", body).status == 200


def test_field_names_of_other_servers_are_accepted(cluster):
    for name in ("max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens", "n_predict", "num_predict"):
        answer = ask(cluster.http, "POST", "/v1/completions", {"prompt": "x", "ignore_eos": True, name: 3})
        assert answer.json["usage"]["completion_tokens"] == 3, name
    for fields in ({"regex": "[xy]{3}"}, {"grammar": {"type": "regex", "value": "[xy]{3}"}}, {"json_schema": {"const": 7}},
                   {"format": {"const": 7}}, {"response_format": {"type": "json_object", "schema": {"const": 7}}}):
        answer = ask(cluster.http, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 20, **fields})
        assert re.fullmatch("[xy]{3}|7", answer.json["choices"][0]["text"]), fields


@pytest.mark.parametrize("value", [0, -1, 2.5, 10**11])
def test_every_max_tokens_error_states_the_same_range(cluster, value):
    for name in ("max_tokens", "max_completion_tokens", "n_predict"):
        if name == "n_predict" and value == -1:
            continue
        message = refused(cluster, prompt="x", **{name: value})["message"]
        assert message == f"{name}: {value} is not an integer from 1 to what the prompt leaves of the model's context"


def test_errors_for_invalid_utf8_give_field_and_byte(cluster):
    def message(body):
        answer = ask(cluster.http, "POST", "/v1/completions", body)
        assert answer.status == 400
        return answer.error["message"]
    assert message(b'{"prompt": "ab\xff"}') == "prompt: is not valid UTF-8 at byte 2"
    assert message(b'{"prompt": "x", "stop": ["a", "\xc3"]}') == "stop[1]: is not valid UTF-8 at byte 0"
    assert "half of a surrogate pair" in message(b'{"prompt": "\\ud800"}')
    assert "byte order mark" in message(b'\xef\xbb\xbf{"prompt": "x"}')


def test_bodies_that_are_not_json(cluster):
    for body in (b"", b"{", b"[]", b"null", b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b"\x00", b'{"prompt": "x"} {}',
                 b'{"a":' * 100_000, b"[" * 1_000_000, b'{"prompt": ' + b"9" * 400_000 + b"}"):
        answer = ask(cluster.http, "POST", "/v1/completions", body)
        assert answer.status == 400, body[:50]
        assert answer.error["message"]


def test_an_unknown_model_is_not_found(cluster):
    error = refused(cluster, prompt="x", model="gpt-4", status=404)
    assert error["code"] == "model_not_found" and error["param"] == "model"


def test_a_full_queue_gives_429_and_a_lost_stage_gives_an_event():
    cluster = Cluster(DEMO_MODEL, stages=2, flags=["--max-sequences", "1", "--max-waiting", "1", "--recovery-limit", "0"])
    cluster.start()
    try:
        long = {"prompt": [5] * 8, "ignore_eos": True, "max_tokens": 2000, "stream": True}
        with connection(cluster.http) as first, connection(cluster.http) as second:
            first.sendall(request_bytes("POST", "/v1/completions", long))
            reader = Reader(first)
            assert reader.head()[0] == 200
            second.sendall(request_bytes("POST", "/v1/completions", long))
            wait_for(lambda: ask(cluster.http, "GET", "/status").json["scheduler"]["waiting"] == 1)
            full = ask(cluster.http, "POST", "/v1/completions", dict(long, stream=False))
            assert full.status == 429 and full.headers["retry-after"] == "1"
            assert full.error["type"] == "rate_limit_error"
            worker = [pid for pid, name in children_of(cluster.process.pid) if name == "stagecoach-work"][1]
            os.kill(worker, signal.SIGKILL)
            events = reader.rest().decode()
            assert events.endswith("data: [DONE]\n\n\r\n0\r\n\r\n")
            last = [line for line in events.splitlines() if line.startswith('data: {"error"')]
            error = json.loads(last[0].removeprefix("data: "))["error"]
            assert "stage" in error["message"] and error["code"] == "service_unavailable"
            waited = Reader(second).response()  # nothing was sent yet, so the error is a status
            assert waited.status == 503
    finally:
        cluster.kill()
