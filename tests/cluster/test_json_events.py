"""JSON events: the values of an answer's JSON by path, sent while it is generated."""
import json

import pytest
import structured
from harness import Cluster
from stagecoach.v1 import inference_pb2 as pb
from workload import GOLDEN, golden_cases

MODEL = "mistral"
PROMPT = pb.TokenIds(ids=golden_cases(MODEL)[0]["prompt_ids"])
BIAS = structured.closing_bias(GOLDEN / MODEL)
SCHEMA = {"type": "object", "properties": {
    "answer": {"type": "string", "minLength": 5, "maxLength": 30},
    "challenges": {"type": "array", "minItems": 2, "maxItems": 3, "items": {
        "type": "object", "properties": {"title": {"type": "string", "maxLength": 8}, "n": {"type": "number"}},
        "required": ["title", "n"], "additionalProperties": False}},
    "done": {"type": ["boolean", "null"]}}, "required": ["answer", "challenges", "done"], "additionalProperties": False}


@pytest.fixture(scope="module")
def cluster():
    with Cluster(GOLDEN / MODEL, stages=2, flags=["--dtype", "float32"]) as cluster:
        yield cluster


def scalars(value, path=""):
    """{path: text} of a document's scalar values, in the form of events."""
    if isinstance(value, dict):
        return {k: v for name, below in value.items() for k, v in scalars(below, f"{path}/{name}").items()}
    if isinstance(value, list):
        return {k: v for i, below in enumerate(value) for k, v in scalars(below, f"{path}/{i}").items()}
    return {path: value if isinstance(value, str) else None}


def read(stub, request):
    """Returns {path: text} of all events, the text, the token ids and the finish reason."""
    events, text, ids, finish = {}, "", [], 0
    for message in stub.Generate(request):
        for event in message.json_events:
            events[event.path] = events.get(event.path, "") + event.delta
        text += message.text
        ids += message.token_ids
        finish = message.finish_reason or finish
    return events, text, ids, finish


@pytest.mark.parametrize("seed", range(8))
def test_events_are_the_documents_values(cluster, seed):
    sampling = structured.json_schema(SCHEMA, seed=seed, max_tokens=400, logit_bias=BIAS)
    plain = pb.GenerateRequest(tokens=PROMPT, sampling=sampling)
    _, text, ids, finish = read(cluster.stub, plain)
    events, no_text, same_ids, same_finish = read(
        cluster.stub, pb.GenerateRequest(tokens=PROMPT, sampling=sampling, json_events=pb.JsonEvents()))
    assert (no_text, same_ids, same_finish) == ("", ids, finish)
    if finish == pb.FINISH_REASON_LENGTH:
        return
    document = json.loads(text)
    expected = scalars(document)
    assert events.keys() == expected.keys()
    for path, value in expected.items():
        if value is not None:
            assert events[path] == value
    for path in expected.keys() - {p for p, v in expected.items() if v is not None}:
        value = document
        for part in path.split("/")[1:]:
            value = value[int(part) if isinstance(value, list) else part]
        assert json.loads(events[path]) == value

    chosen, *_ = read(cluster.stub, pb.GenerateRequest(
        tokens=PROMPT, sampling=sampling, json_events=pb.JsonEvents(paths=["/answer", "/challenges/*/title"])))
    assert chosen == {p: t for p, t in events.items() if p == "/answer" or p.endswith("/title")}


def test_events_from_a_code_fence(cluster):
    """No JSON grammar: the document is in a Markdown fence between sentences."""
    lark = r'start: "Sure, {here} it is:\n```json\n{\"answer\": \"" /[a-z ]{3,9}/ "\", \"x\": 1}\n```\nBye [1]."'
    request = pb.GenerateRequest(tokens=PROMPT, json_events=pb.JsonEvents(paths=["/answer"]),
                                 sampling=structured.sampling(grammar=pb.Grammar(lark=lark)))
    events, text, _, finish = read(cluster.stub, request)
    request.ClearField("json_events")
    _, whole, _, _ = read(cluster.stub, request)
    assert finish == pb.FINISH_REASON_STOP and text == ""
    assert events == {"/answer": json.loads(whole.split("```json\n")[1].split("\n```")[0])["answer"]}
