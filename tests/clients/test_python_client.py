"""A client generated only from the .proto files, as a user would write it."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from stagecoach.v1 import inference_pb2 as pb

GREEDY = pb.SamplingParams(temperature=0, max_tokens=16)


def test_health(cluster):
    health = health_pb2_grpc.HealthStub(cluster.channel)
    for service in ("", "stagecoach.v1.Inference"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as error:
        health.Check(health_pb2.HealthCheckRequest(service="nobody"))
    assert error.value.code() == grpc.StatusCode.NOT_FOUND


def test_generate_streams(cluster):
    messages = list(cluster.stub.Generate(pb.GenerateRequest(text="The train", sampling=GREEDY)))
    assert len(messages) > 1
    assert messages[0].prompt.token_ids
    (finish_reason,) = [message.finish_reason for message in messages if message.finish_reason]
    assert finish_reason in (pb.FINISH_REASON_STOP, pb.FINISH_REASON_LENGTH)
    tokens = [token for message in messages for token in message.token_ids]
    assert messages[-1].usage.completion_tokens == len(tokens)
    assert messages[-1].usage.prompt_tokens == len(messages[0].prompt.token_ids)
    assert messages[-1].timing.total_ms >= messages[-1].timing.ttft_ms > 0


def test_a_token_prompt_equals_a_text_prompt(cluster):
    tokens = cluster.stub.Tokenize(pb.TokenizeRequest(text="The train")).token_ids
    by_ids = cluster.stub.Generate(pb.GenerateRequest(tokens=pb.TokenIds(ids=tokens), sampling=GREEDY))
    by_text = cluster.stub.Generate(pb.GenerateRequest(text="The train", sampling=GREEDY))
    assert "".join(m.text for m in by_ids) == "".join(m.text for m in by_text)


def test_chat_equals_generate_on_the_rendered_text(cluster):
    chat = pb.ChatRequest(messages=[pb.ChatMessage(role="user", content="Good morning!")], sampling=GREEDY)
    rendered = cluster.stub.Tokenize(pb.TokenizeRequest(chat=chat))
    assert "Good morning!" in rendered.text
    by_chat = [t for m in cluster.stub.Chat(chat) for t in m.token_ids]
    by_ids = [t for m in cluster.stub.Generate(pb.GenerateRequest(
        tokens=pb.TokenIds(ids=rendered.token_ids), sampling=GREEDY)) for t in m.token_ids]
    assert by_chat == by_ids


def test_model(cluster):
    model = cluster.stub.GetModel(pb.GetModelRequest())
    assert [m.id for m in cluster.stub.ListModels(pb.ListModelsRequest()).models] == [model.id]
    assert model.id == "demo-model"
    assert len(model.stages) == 2
    assert sum(stage.n_layers for stage in model.stages) == model.n_layers
    assert model.stages[1].first_layer == model.stages[0].n_layers
    assert model.has_chat_template
    assert cluster.kv_blocks == max(group.total_blocks for group in model.kv.groups)


def test_metrics(cluster):
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    text = opener.open(f"http://{cluster.metrics}/metrics", timeout=30).read().decode()
    assert "# TYPE" in text
