"""Grammars through real routers and workers: the output has the requested form, however it is scheduled."""
import asyncio
import json
import re
import threading

import grpc
import jsonschema
import pytest
import structured
from harness import Cluster, wait_until
from stagecoach.v1 import inference_pb2 as pb
from workload import GOLDEN, free_blocks, generate, golden_cases, run_all

MODEL = "llama3"
PROMPT = pb.TokenIds(ids=golden_cases(MODEL)[0]["prompt_ids"])
BIAS = structured.closing_bias(GOLDEN / MODEL)
FLAGS = ["--dtype", "float32", "--max-model-len", "512"]
VALIDATORS = {"draft2020-12": jsonschema.Draft202012Validator, "draft2019-09": jsonschema.Draft201909Validator,
              "draft7": jsonschema.Draft7Validator, "draft4": jsonschema.Draft4Validator}


def request(sampling, **fields):
    return pb.GenerateRequest(tokens=PROMPT, sampling=sampling, **fields)


def ask(cluster, sampling, **fields):
    async def one():
        async with grpc.aio.insecure_channel(cluster.grpc) as channel:
            from stagecoach.v1 import inference_pb2_grpc as pb_grpc
            return await generate(pb_grpc.InferenceStub(channel), request(sampling, **fields))
    return asyncio.run(one())


@pytest.fixture(scope="module")
def cluster():
    with Cluster(GOLDEN / MODEL, stages=2, flags=FLAGS) as cluster:
        yield cluster


async def answers_or_refusals(address, requests, concurrency=24):
    """Per request its answers, or the error's text if the status is INVALID_ARGUMENT."""
    gate = asyncio.Semaphore(concurrency)
    async with grpc.aio.insecure_channel(address) as channel:
        from stagecoach.v1 import inference_pb2_grpc as pb_grpc
        stub = pb_grpc.InferenceStub(channel)

        async def one(one_request):
            async with gate:
                try:
                    return await generate(stub, one_request)
                except grpc.aio.AioRpcError as error:
                    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error.details()
                    return error.details()

        return await asyncio.gather(*(one(r) for r in requests))


def test_schemas_of_the_test_suite(cluster):
    """Every schema is refused, or gives only documents that an independent validator accepts."""
    entries = structured.SCHEMAS + [{"draft": "draft2020-12", "from": "app", "schema": s} for s in structured.APP_SCHEMAS] * 4
    requests = [request(structured.json_schema(entry["schema"], seed=i, n=2, logit_bias=BIAS))
                for i, entry in enumerate(entries)]
    outcomes = asyncio.run(answers_or_refusals(cluster.grpc, requests))
    n_refused = n_whole = 0
    for entry, outcome in zip(entries, outcomes, strict=True):
        if isinstance(outcome, str):
            assert outcome.startswith("sampling.grammar.json_schema: ") and len(outcome) > 40, (entry, outcome)
            n_refused += 1
            continue
        for answer in outcome:
            if answer.finish_reason == pb.FINISH_REASON_LENGTH:
                continue
            n_whole += 1
            document = json.loads(answer.text)
            VALIDATORS[entry["draft"]](entry["schema"]).validate(document)
    print(f"{len(entries)} schemas: {n_refused} refused, {n_whole} whole documents valid")
    assert n_whole > 300
    assert n_refused < 0.6 * len(entries)


def test_other_kinds_of_grammars(cluster):
    forms = {
        "regex": (pb.Grammar(regex=r"[a-f]{2,6}(-[0-9]+)?"), lambda text: re.fullmatch(r"[a-f]{2,6}(-[0-9]+)?", text)),
        "choice": (pb.Grammar(choice=pb.GrammarChoice(texts=["yes", "no", "größer"])),
                   lambda text: text in ("yes", "no", "größer")),
        "lark": (pb.Grammar(lark='start: "<" item ("," item)* ">"\nitem: /[xy]{1,3}/ | %json {"const": 7}'),
                 lambda text: re.fullmatch(r"<([xy]{1,3}|7)(,([xy]{1,3}|7))*>", text)),
        "json_object": (pb.Grammar(json_object=True), lambda text: isinstance(json.loads(text), dict)),
    }
    for name, (grammar, matches) in forms.items():
        answers = ask(cluster, structured.sampling(n=16, grammar=grammar, logit_bias=BIAS))
        whole = [a for a in answers if a.finish_reason == pb.FINISH_REASON_STOP]
        assert len(whole) > 4, name
        for answer in whole:
            assert matches(answer.text), (name, answer.text)
        assert len({a.text for a in whole}) > 1, name


def test_json_is_compact_unless_whitespace_is_requested(cluster):
    schema = json.dumps(structured.APP_SCHEMAS[0])
    compact = ask(cluster, structured.sampling(n=8, logit_bias=BIAS, grammar=pb.Grammar(json_schema=schema)))
    spaced = ask(cluster, structured.sampling(n=8, logit_bias=BIAS, max_tokens=400,
                                              grammar=pb.Grammar(json_schema=schema, any_whitespace=True)))
    for answer in compact + spaced:
        if answer.finish_reason == pb.FINISH_REASON_STOP:
            document = json.loads(answer.text)
            bare = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
            assert answer in spaced or len(answer.text) <= len(bare) + 12 * answer.text.count("\\")


def test_a_truncated_answer_has_finish_reason_length(cluster):
    (answer,) = ask(cluster, structured.json_schema(structured.APP_SCHEMAS[1], max_tokens=12))
    assert answer.finish_reason == pb.FINISH_REASON_LENGTH
    assert '{"steps":['.startswith(answer.text[:10]) and len(answer.token_ids) == 12
    (answer,) = ask(cluster, structured.sampling(grammar=pb.Grammar(regex="ab+c"), stop=["b"]))
    assert answer.finish_reason == pb.FINISH_REASON_STOP and answer.text == "a"


def test_the_end_of_a_grammar_ends_the_choice(cluster):
    """This also holds with min_tokens and ignore_eos, which delay the end as long as the grammar allows more tokens."""
    choice = pb.Grammar(choice=pb.GrammarChoice(texts=["a", "ab", "abc"]))
    for fields in ({"min_tokens": 50}, {"ignore_eos": True}, {"min_tokens": 50, "ignore_eos": True}):
        for answer in ask(cluster, structured.sampling(n=8, grammar=choice, **fields)):
            assert answer.text == "abc" and answer.finish_reason == pb.FINISH_REASON_STOP, fields
            assert len(answer.token_ids) <= 4
    texts = {answer.text for answer in ask(cluster, structured.sampling(n=32, grammar=choice))}
    assert texts == {"a", "ab", "abc"}


def test_logprobs_are_not_masked(cluster):
    plain = ask(cluster, pb.SamplingParams(temperature=0, max_tokens=1, logprobs=20))[0]
    held = ask(cluster, pb.SamplingParams(temperature=0, max_tokens=1, logprobs=20, grammar=pb.Grammar(regex="[0-9]+")))[0]
    assert held.text.isdigit()
    assert held.logprobs[0][2] == plain.logprobs[0][2]
    assert held.logprobs[0][1] <= plain.logprobs[0][1]


def mixed(n):
    """Requests of every grammar type and some without a grammar, including seeds and penalties."""
    requests = []
    for i in range(n):
        fields = {"seed": i, "max_tokens": 40 + i, "logit_bias": BIAS}
        if i % 4 == 1:
            fields |= {"frequency_penalty": 0.4, "min_tokens": i % 30}
        if i % 5 == 2:
            fields |= {"n": 3, "logprobs": 2}
        if i % 7 == 3:
            fields |= {"ignore_eos": True}
        kind = i % 6
        if kind == 0:
            sampling = structured.sampling(**fields)
        elif kind == 1:
            sampling = structured.sampling(grammar=pb.Grammar(regex=r"(ab|[0-9]{2,4}| )*"), **fields)
        elif kind == 2:
            sampling = structured.sampling(grammar=pb.Grammar(json_object=True), **fields)
        else:
            sampling = structured.json_schema(structured.APP_SCHEMAS[i % len(structured.APP_SCHEMAS)], **fields)
        requests.append(request(sampling))
    return requests


@pytest.fixture(scope="module")
def alone():
    with Cluster(GOLDEN / MODEL, stages=1, flags=[*FLAGS, "--plan-ahead", "off"]) as cluster:
        return asyncio.run(run_all(cluster.grpc, mixed(48), 1))


@pytest.mark.parametrize("stages,flags", [
    (1, []), (2, ["--prefill-chunk", "7"]), (4, []), (2, ["--preempt-every", "4"]), (1, ["--preempt-every", "3", "--plan-ahead", "off"]),
], ids=["one stage", "two stages, chunks of 7", "four stages", "preempted every 4 steps", "preempted, nothing planned ahead"])
def test_answers_do_not_depend_on_scheduling(alone, stages, flags):
    with Cluster(GOLDEN / MODEL, stages=stages, flags=[*FLAGS, *flags]) as cluster:
        answers = asyncio.run(run_all(cluster.grpc, mixed(48), 24))
        assert all(free == total for _, free, total in free_blocks(cluster.stub))
    for i, (ours, theirs) in enumerate(zip(answers, alone, strict=True)):
        assert ours == theirs, f"request {i}"


def heavy(i):
    properties = {f"p{i}_{j}": {"type": "string", "pattern": f"^x{j}[a-z]*$"} for j in range(800)}
    return {"type": "object", "properties": properties, "required": list(properties)}


def test_bad_grammars_do_not_affect_other_requests(cluster):
    """Invalid, huge and slow grammars beside normal requests, which get their usual answers."""
    ordinary = [request(pb.SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)) for _ in range(16)]
    expected = asyncio.run(run_all(cluster.grpc, ordinary[:1], 1))[0]
    bad = [pb.Grammar(json_schema=text) for text in
           ["", "{", "[]", "false", '{"type": 1}', '{"$ref": "file:///etc/passwd"}', '{"$ref": "http://127.0.0.1:9/x"}',
            '{"$ref": "#/nowhere"}', "[" * 100_000, '{"not": {}}', json.dumps({"enum": ["x" * 300_000]}),
            '{"items":' * 500 + "{}" + "}" * 500]]
    bad += [pb.Grammar(regex=text) for text in ["(", "[", "a{5", r"(?=x)", "(" * 5000, "*"]]
    bad += [pb.Grammar(lark=text) for text in ["", "start: x", "start: (", 'start: "a', "%", "start: start" * 3000, "\0"]]
    bad += [pb.Grammar(), pb.Grammar(json_object=False), pb.Grammar(choice=pb.GrammarChoice())]
    slow = [request(structured.json_schema(heavy(i), max_tokens=4)) for i in range(6)]

    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.extend(asyncio.run(answers_or_refusals(
        cluster.grpc, [request(structured.sampling(grammar=grammar)) for grammar in bad] + slow))))
    thread.start()
    answers = asyncio.run(run_all(cluster.grpc, ordinary, 4))
    thread.join()
    assert all(answer == expected for answer in answers)
    for grammar, outcome in zip(bad, outcomes):
        assert isinstance(outcome, str) and outcome.startswith("sampling.grammar"), grammar
    for outcome in outcomes[len(bad):]:
        assert not isinstance(outcome, str) and outcome[0].text.startswith('{"p'[:len(outcome[0].text)]), outcome
    assert all(free == total for _, free, total in free_blocks(cluster.stub))


def test_a_grammar_that_becomes_too_complex_ends_its_own_stream(cluster):
    """44 bytes whose masks take longer with each token: its stream ends at the same token each time, others say what they say."""
    ordinary = [request(pb.SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)) for _ in range(8)]
    expected = asyncio.run(run_all(cluster.grpc, ordinary[:1], 1))[0]
    grammar = pb.Grammar(lark='start: e\ne: e e e | e e | "a" | "b"\n')
    ambiguous = pb.SamplingParams(max_tokens=400, seed=7, ignore_eos=True, grammar=grammar)
    ends = []

    def bombs():
        for _ in range(3):
            n_tokens = 0
            with pytest.raises(grpc.RpcError) as error:
                for message in cluster.stub.Generate(request(ambiguous)):
                    n_tokens += len(message.token_ids)
            ends.append((n_tokens, error.value.code(), error.value.details()))

    thread = threading.Thread(target=bombs)
    thread.start()
    answers = asyncio.run(run_all(cluster.grpc, ordinary, 4))
    thread.join()
    assert all(answer == expected for answer in answers)
    n_tokens, code, details = ends[0]
    assert 0 < n_tokens < 100 and code == grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("sampling.grammar: ") and "items" in details
    assert ends == [ends[0]] * 3


def test_clients_that_vanish(cluster):
    """Streams with grammars, cancelled during compilation and during generation."""
    for i in range(24):
        stream = cluster.stub.Generate(request(structured.json_schema(heavy(i % 3) if i % 2 else structured.APP_SCHEMAS[0],
                                                                      max_tokens=300)))
        if i % 4 < 2:
            next(stream)
        stream.cancel()
    assert ask(cluster, structured.sampling(grammar=pb.Grammar(regex="ok")))[0].text == "ok"
    wait_until(lambda: all(free == total for _, free, total in free_blocks(cluster.stub)), "all blocks are free")
