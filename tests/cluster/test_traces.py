"""Traces of real requests at an OTLP receiver: the spans of router and stages form one tree, whose parent is the
client's span."""
import json
import os
import signal
import threading
import urllib.request
from concurrent import futures

import grpc
import pytest
from harness import Cluster, children_of
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc
from stagecoach.v1 import inference_pb2 as pb
from workload import GOLDEN

MODEL = GOLDEN / "mistral"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
SAMPLED = f"00-{TRACE_ID}-{CALLER}-01"
NOT_SAMPLED = f"00-{TRACE_ID}-{CALLER}-00"
# Prefill takes three chunks.
FLAGS = ["--dtype", "float32", "--prefill-chunk", "16"]
REQUEST = pb.GenerateRequest(tokens=pb.TokenIds(ids=[5] * 40), request_id="visit-17",
                             sampling=pb.SamplingParams(max_tokens=6, ignore_eos=True))


class Receiver(otlp_grpc.TraceServiceServicer):
    """Stores the received spans: [(service, span)]."""

    def __init__(self):
        self._changed = threading.Condition()
        self._spans = []
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        otlp_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def Export(self, request, context):
        with self._changed:
            for resource in request.resource_spans:
                service = {a.key: a.value.string_value for a in resource.resource.attributes}["service.name"]
                for scope in resource.scope_spans:
                    self._spans += [(service, span) for span in scope.spans]
            self._changed.notify_all()
        return otlp.ExportTraceServiceResponse()

    def wait_for(self, condition):
        """Returns the spans once `condition` holds for them."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self._spans), timeout=120), self._spans
            return list(self._spans)

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self._server.stop(0).wait()


@pytest.fixture
def receiver():
    with Receiver() as receiver:
        yield receiver


def traced_cluster(receiver, *flags):
    return Cluster(MODEL, stages=2, flags=[*FLAGS, "--otlp-endpoint", receiver.address, *flags])


def named(spans, name):
    return [span for _, span in spans if span.name == name]


def test_spans_of_one_request_form_one_tree(receiver):
    with traced_cluster(receiver) as cluster:
        assert sum(len(m.token_ids) for m in cluster.stub.Generate(REQUEST, metadata=(("traceparent", SAMPLED),))) == 6
    # All spans have arrived once the cluster has ended: its programs send the remaining ones before they exit.
    spans = receiver.wait_for(lambda spans: {"request", "stage 0", "stage 1"} <= {span.name for _, span in spans})
    assert {span.trace_id.hex() for _, span in spans} == {TRACE_ID}
    request, = named(spans, "request")
    assert request.parent_span_id.hex() == CALLER
    attributes = {a.key: a.value for a in request.attributes}
    assert attributes["gen_ai.request.id"].string_value == "visit-17"
    assert attributes["gen_ai.usage.input_tokens"].int_value == 40
    assert attributes["gen_ai.usage.output_tokens"].int_value == 6
    for name in ("queue", "prefill", "decode"):
        span, = named(spans, name)
        assert span.parent_span_id == request.span_id
        assert request.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
    chunks = named(spans, "prefill chunk")
    assert [next(a.value.int_value for a in c.attributes if a.key == "stagecoach.tokens") for c in chunks] == [16, 16, 8]
    assert {chunk.parent_span_id for chunk in chunks} == {named(spans, "prefill")[0].span_id}
    steps = {span.span_id for span in chunks + named(spans, "decode step")}
    for stage in ("stage 0", "stage 1"):
        of_stage = [(service, span) for service, span in spans if span.name == stage]
        assert {service for service, _ in of_stage} == {"stagecoach-worker"}
        assert {span.parent_span_id for _, span in of_stage} == steps
    assert all(service == "stagecoach-router" for service, span in spans if not span.name.startswith("stage "))


def test_http_reads_the_header_and_unsampled_requests_have_no_spans(receiver):
    with traced_cluster(receiver) as cluster:
        for traceparent in (NOT_SAMPLED, SAMPLED):
            body = json.dumps({"prompt": [5] * 8, "max_tokens": 2, "ignore_eos": True}).encode()
            urllib.request.urlopen(urllib.request.Request(f"http://{cluster.http}/v1/completions", body, {
                "Content-Type": "application/json", "traceparent": traceparent}), timeout=120).read()
    spans = receiver.wait_for(lambda spans: named(spans, "request"))
    assert len(named(spans, "request")) == 1
    assert named(spans, "request")[0].parent_span_id.hex() == CALLER


def test_the_ratio_applies_if_the_client_does_not_decide(receiver):
    with traced_cluster(receiver, "--trace-sample-ratio", "0") as cluster:
        list(cluster.stub.Generate(REQUEST))
        list(cluster.stub.Generate(REQUEST, metadata=(("traceparent", SAMPLED),)))
    spans = receiver.wait_for(lambda spans: named(spans, "request"))
    assert [span.trace_id.hex() for span in named(spans, "request")] == [TRACE_ID]


def test_without_a_client_s_context_the_router_starts_a_trace(receiver):
    with traced_cluster(receiver) as cluster:
        list(cluster.stub.Generate(REQUEST))
    request, = named(receiver.wait_for(lambda spans: named(spans, "request")), "request")
    assert request.parent_span_id == b"" and any(request.trace_id)


def test_a_lost_stage_is_an_error_on_the_request_s_span(receiver):
    cluster = traced_cluster(receiver, "--recovery-limit", "0")
    cluster.start()
    stream = cluster.stub.Generate(pb.GenerateRequest(tokens=pb.TokenIds(ids=[5] * 8), sampling=pb.SamplingParams(
        max_tokens=480, ignore_eos=True, n=64)), metadata=(("traceparent", SAMPLED),))
    next(stream)
    os.kill([pid for pid, name in children_of(cluster.process.pid) if name == "stagecoach-work"][1], signal.SIGKILL)
    with pytest.raises(grpc.RpcError):
        list(stream)
    cluster.process.wait(timeout=60)
    request, = named(receiver.wait_for(lambda spans: named(spans, "request")), "request")
    assert request.status.code == otlp.Status.STATUS_CODE_ERROR and "stage 1" in request.status.message


def test_an_unreachable_receiver_changes_nothing():
    with Receiver() as gone:
        pass
    with traced_cluster(gone) as cluster:
        assert sum(len(m.token_ids) for m in cluster.stub.Generate(REQUEST)) == 6
        with urllib.request.urlopen(f"http://{cluster.metrics}/metrics") as page:
            assert 'stagecoach_trace_spans_total{result="dropped"}' in page.read().decode()


def test_json_logs_name_the_request():
    with Cluster(MODEL, stages=2, flags=[*FLAGS, "--log-format", "json"]) as cluster:
        list(cluster.stub.Generate(REQUEST))
    lines = [json.loads(line) for line in cluster.log().splitlines()]
    assert {"router", "worker 0", "worker 1"} <= {line["program"] for line in lines}
    assert all({"time", "level", "program", "message"} <= line.keys() for line in lines)
    about = [line for line in lines if line.get("request_id") == "visit-17"]
    assert len(about) == 1 and about[0]["level"] == "info" and " output_tokens=6 " in about[0]["message"]
