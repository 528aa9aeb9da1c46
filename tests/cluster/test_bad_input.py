"""Any bad input gets a clear error, other clients are not disturbed, and every KV block is freed."""
import asyncio
import random
import threading

import grpc
import pytest
from harness import Cluster
from stagecoach.v1 import inference_pb2 as pb
from workload import GOLDEN, free_blocks, generate, golden_cases

MODEL = "llama3"
S = pb.SamplingParams
INVALID = grpc.StatusCode.INVALID_ARGUMENT
NAN, INF = float("nan"), float("inf")


@pytest.fixture(scope="module")
def cluster():
    flags = ["--dtype", "float32", "--max-model-len", "256", "--max-logprobs", "5"]
    with Cluster(GOLDEN / MODEL, stages=2, flags=flags) as cluster:
        yield cluster


@pytest.fixture
def undisturbed(cluster):
    """A normal request beside the bad one must get its usual answer; afterwards all blocks are free."""
    case = golden_cases(MODEL)[0]
    request = pb.GenerateRequest(tokens=pb.TokenIds(ids=case["prompt_ids"]),
                                 sampling=S(temperature=0, max_tokens=24, ignore_eos=True))
    tokens = []
    stream = cluster.stub.Generate(request)
    reader = threading.Thread(target=lambda: [tokens.extend(m.token_ids) for m in stream])
    reader.start()
    yield
    reader.join(timeout=60)
    assert not reader.is_alive()
    again = [t for m in cluster.stub.Generate(request) for t in m.token_ids]
    assert tokens == again and len(tokens) == 24
    assert_blocks_return(cluster)


def assert_blocks_return(cluster):
    """A cancelled stream's blocks are freed within a step or two: poll a limited number of times."""
    for _ in range(2000):
        blocks = free_blocks(cluster.stub)
        if all(free == total for _, free, total in blocks):
            return
    raise AssertionError(f"KV blocks (window, free, total) were not returned: {blocks}")


def prompt(n=4):
    return pb.TokenIds(ids=[5] * n)


BAD = {
    "no prompt": (pb.GenerateRequest(), "prompt"),
    "empty prompt": (pb.GenerateRequest(tokens=pb.TokenIds()), "prompt"),
    "negative token id": (pb.GenerateRequest(tokens=pb.TokenIds(ids=[1, -1])), "-1"),
    "token id outside the vocabulary": (pb.GenerateRequest(tokens=pb.TokenIds(ids=[1, 100000])), "100000"),
    "largest token id": (pb.GenerateRequest(tokens=pb.TokenIds(ids=[2**31 - 1])), str(2**31 - 1)),
    "prompt past the context": (pb.GenerateRequest(tokens=prompt(300)), "300"),
    "max_tokens past the context": (pb.GenerateRequest(tokens=prompt(), sampling=S(max_tokens=2**32 - 1)), "max_tokens"),
    "max_tokens zero": (pb.GenerateRequest(tokens=prompt(), sampling=S(max_tokens=0)), "max_tokens"),
    "n zero": (pb.GenerateRequest(tokens=prompt(), sampling=S(n=0)), "n"),
    "n absurd": (pb.GenerateRequest(tokens=prompt(), sampling=S(n=2**32 - 1)), "n"),
    "temperature NaN": (pb.GenerateRequest(tokens=prompt(), sampling=S(temperature=NAN)), "temperature"),
    "temperature negative": (pb.GenerateRequest(tokens=prompt(), sampling=S(temperature=-1)), "temperature"),
    "temperature infinite": (pb.GenerateRequest(tokens=prompt(), sampling=S(temperature=INF)), "temperature"),
    "top_p zero": (pb.GenerateRequest(tokens=prompt(), sampling=S(top_p=0)), "top_p"),
    "top_p NaN": (pb.GenerateRequest(tokens=prompt(), sampling=S(top_p=NAN)), "top_p"),
    "top_p above one": (pb.GenerateRequest(tokens=prompt(), sampling=S(top_p=1.5)), "top_p"),
    "top_k below -1": (pb.GenerateRequest(tokens=prompt(), sampling=S(top_k=-2)), "top_k"),
    "min_p above one": (pb.GenerateRequest(tokens=prompt(), sampling=S(min_p=2)), "min_p"),
    "presence_penalty": (pb.GenerateRequest(tokens=prompt(), sampling=S(presence_penalty=9)), "presence_penalty"),
    "frequency_penalty NaN": (pb.GenerateRequest(tokens=prompt(), sampling=S(frequency_penalty=NAN)), "frequency_penalty"),
    "repetition_penalty zero": (pb.GenerateRequest(tokens=prompt(), sampling=S(repetition_penalty=0)), "repetition_penalty"),
    "logit_bias outside": (pb.GenerateRequest(tokens=prompt(), sampling=S(logit_bias={100000: 1.0})), "logit_bias"),
    "logit_bias NaN": (pb.GenerateRequest(tokens=prompt(), sampling=S(logit_bias={1: NAN})), "logit_bias"),
    "logprobs too many": (pb.GenerateRequest(tokens=prompt(), sampling=S(logprobs=6)), "logprobs"),
    "prompt_logprobs too many": (pb.GenerateRequest(tokens=prompt(), sampling=S(prompt_logprobs=2**32 - 1)), "prompt_logprobs"),
    "stop empty": (pb.GenerateRequest(tokens=prompt(), sampling=S(stop=[""])), "stop"),
    "stop too many": (pb.GenerateRequest(tokens=prompt(), sampling=S(stop=["x"] * 100)), "stop"),
    "stop token id outside": (pb.GenerateRequest(tokens=prompt(), sampling=S(stop_token_ids=[-5])), "stop_token_ids"),
    "min_tokens above max_tokens": (pb.GenerateRequest(tokens=prompt(), sampling=S(min_tokens=9, max_tokens=8)), "min_tokens"),
}


@pytest.mark.parametrize("name", BAD)
def test_the_error_names_a_bad_field(name, cluster, undisturbed):
    request, words = BAD[name]
    with pytest.raises(grpc.RpcError) as error:
        list(cluster.stub.Generate(request))
    assert error.value.code() == INVALID, error.value.details()
    assert words in error.value.details()


def test_unknown_model(cluster, undisturbed):
    with pytest.raises(grpc.RpcError) as error:
        list(cluster.stub.Generate(pb.GenerateRequest(model="nobody", tokens=prompt())))
    assert error.value.code() == grpc.StatusCode.NOT_FOUND
    assert "nobody" in error.value.details()


def test_empty_chat(cluster, undisturbed):
    with pytest.raises(grpc.RpcError) as error:
        list(cluster.stub.Chat(pb.ChatRequest()))
    assert error.value.code() == INVALID
    assert "messages" in error.value.details()


@pytest.mark.parametrize("method", ["Generate", "Chat", "Tokenize", "Detokenize", "ListModels", "GetModel"])
def test_random_bytes(method, cluster, undisturbed):
    """Random bytes as the request: an error, or an answer if they are a valid message by chance; never a crash."""
    rng = random.Random(method)
    path = f"/stagecoach.v1.Inference/{method}"
    streaming = method in ("Generate", "Chat")
    make = cluster.channel.unary_stream if streaming else cluster.channel.unary_unary
    call = make(path, request_serializer=lambda b: b, response_deserializer=lambda b: b)
    codes = set()
    for size in [0, 1, 2, 3, 5, 8, 13, 40, 100, 1000, 20000] * 5:
        data = rng.randbytes(size)
        try:
            answer = call(data, timeout=30)
            codes.add("ok")
            if streaming:
                answer.cancel()
        except grpc.RpcError as error:
            codes.add(error.code())
    assert grpc.StatusCode.UNAVAILABLE not in codes


def test_message_over_the_limit(cluster, undisturbed):
    with pytest.raises(grpc.RpcError) as error:
        list(cluster.stub.Generate(pb.GenerateRequest(text="x" * (20 << 20))))
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_deadline(cluster, undisturbed):
    request = pb.GenerateRequest(tokens=prompt(), sampling=S(max_tokens=250, ignore_eos=True, n=64))
    with pytest.raises(grpc.RpcError) as error:
        list(cluster.stub.Generate(request, timeout=0.02))
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_clients_that_vanish(cluster, undisturbed):
    """Streams cancelled immediately, after the first message and in the middle; connections cut while streams are
    open."""
    def vanish(after, own_channel):
        channel = grpc.insecure_channel(cluster.grpc) if own_channel else cluster.channel
        stream = channel.unary_stream("/stagecoach.v1.Inference/Generate",
                                      request_serializer=pb.GenerateRequest.SerializeToString,
                                      response_deserializer=pb.GenerateResponse.FromString)(
            pb.GenerateRequest(tokens=prompt(30), sampling=S(max_tokens=200, ignore_eos=True, n=2)))
        for _ in range(after):
            next(stream)
        channel.close() if own_channel else stream.cancel()

    threads = [threading.Thread(target=vanish, args=(i % 5, i % 2 == 0)) for i in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_cancel_in_the_queue(cluster, undisturbed):
    """More requests than can run: waiting ones are cancelled before they run."""
    async def main():
        async with grpc.aio.insecure_channel(cluster.grpc) as channel:
            from stagecoach.v1 import inference_pb2_grpc as pb_grpc
            stub = pb_grpc.InferenceStub(channel)
            request = pb.GenerateRequest(tokens=prompt(40), sampling=S(max_tokens=200, ignore_eos=True))
            tasks = [asyncio.create_task(generate(stub, request)) for _ in range(400)]
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            assert all(len(task.result()[0].token_ids) == 200 for task in done)

    asyncio.run(main())


@pytest.mark.parametrize("method, good, field, streams", [
    ("Generate", pb.GenerateRequest(text="ab?", sampling=S(max_tokens=1)), "text", True),
    ("Chat", pb.ChatRequest(messages=[pb.ChatMessage(role="user", content="ab?")]), "messages[0].content", True),
    ("Tokenize", pb.TokenizeRequest(text="ab?"), "text", False),
])
def test_text_that_is_not_utf8(cluster, method, good, field, streams):
    """Clients in other languages can send invalid UTF-8; the error gives its position."""
    wire = good.SerializeToString().replace(b"ab?", b"ab\xff")
    with grpc.insecure_channel(cluster.grpc) as channel:
        make = channel.unary_stream if streams else channel.unary_unary
        call = make(f"/stagecoach.v1.Inference/{method}", request_serializer=lambda message: message,
                    response_deserializer=lambda message: message)
        with pytest.raises(grpc.RpcError) as error:
            answer = call(wire, timeout=60)
            if streams:
                list(answer)
    assert error.value.code() == INVALID
    assert error.value.details() == f"{field}: is not valid UTF-8 at byte 2"
