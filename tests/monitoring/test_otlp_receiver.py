"""Sends a request's trace to rotel, an independent OpenTelemetry receiver that prints what it receives."""
import importlib.util
import pathlib
import re
import subprocess

import grpc
import pytest
from harness import DEMO_MODEL, Cluster, free_ports
from polling import seconds_until
from stagecoach.v1 import inference_pb2 as pb

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
SPAN = re.compile(r"Trace ID\s*: (\w+)\n\s*Parent ID\s*: (\w*)\n\s*ID\s*: (\w+)\n\s*Name\s*: (.+)\n")


@pytest.fixture
def rotel(tmp_path):
    """(address, file with its output)"""
    package = importlib.util.find_spec("rotel")
    if package is None:
        pytest.skip("no rotel: it has wheels for some versions of Python only")
    agent = pathlib.Path(package.origin).with_name("rotel-agent")
    first = free_ports(2)
    address, log = f"127.0.0.1:{first}", tmp_path / "rotel.log"
    with open(log, "w") as out:
        process = subprocess.Popen([agent, "start", "--otlp-grpc-endpoint", address, "--otlp-http-endpoint", f"127.0.0.1:{first + 1}",
                                    "--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed"],
                                   stdout=out, stderr=subprocess.STDOUT)

    try:
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(timeout=60)
        yield address, log
    finally:
        process.kill()
        process.wait()


def paths_of(printed):
    """For each span of the trace: the names on the path from the client's span to it."""
    spans = {span: (parent, name) for trace, parent, span, name in SPAN.findall(printed) if trace == TRACE_ID}
    for parent, name in spans.values():
        path = [name]
        while parent in spans:
            parent, name = spans[parent]
            path.insert(0, name)
        yield " > ".join(path) if parent == CALLER else f"{parent} > {path}"


def test_one_request_over_two_stages(rotel):
    address, log = rotel
    with Cluster(DEMO_MODEL, stages=2, flags=["--otlp-endpoint", address, "--prefill-chunk", "32"]) as cluster:
        request = pb.GenerateRequest(tokens=pb.TokenIds(ids=[5] * 40), sampling=pb.SamplingParams(max_tokens=4, ignore_eos=True))
        list(cluster.stub.Generate(request, metadata=(("traceparent", f"00-{TRACE_ID}-{CALLER}-01"),)))
    expected = [
        "request", "request > decode", "request > decode > decode step", "request > decode > decode step > stage 0",
        "request > decode > decode step > stage 1", "request > prefill",
        "request > prefill > prefill chunk", "request > prefill > prefill chunk",
        "request > prefill > prefill chunk > stage 0", "request > prefill > prefill chunk > stage 0",
        "request > prefill > prefill chunk > stage 1", "request > prefill > prefill chunk > stage 1", "request > queue"]
    # All spans were sent; rotel prints them some time later.
    seconds_until(lambda: sorted(paths_of(log.read_text())) == expected, 60)
    assert sorted(paths_of(log.read_text())) == expected
