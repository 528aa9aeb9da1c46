"""The metric names that dashboards and autoscalers use for vLLM: same types, labels and buckets."""
import re
import urllib.request

import pytest
from harness import DEMO_MODEL, Cluster
from stagecoach.v1 import inference_pb2 as pb

FIRST_TOKEN = [.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560]
INTER_TOKEN = [.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80]
REQUEST = [.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680]
COMMON = {"model_name", "engine"}
NAMES = {
    "vllm:num_requests_running": ("gauge", COMMON, None),
    "vllm:num_requests_waiting": ("gauge", COMMON, None),
    "vllm:kv_cache_usage_perc": ("gauge", COMMON, None),
    "vllm:cache_config_info": ("gauge", COMMON | {"block_size", "num_gpu_blocks", "enable_prefix_caching"}, None),
    "vllm:prompt_tokens_total": ("counter", COMMON, None),
    "vllm:generation_tokens_total": ("counter", COMMON, None),
    "vllm:prefix_cache_queries_total": ("counter", COMMON, None),
    "vllm:prefix_cache_hits_total": ("counter", COMMON, None),
    "vllm:num_preemptions_total": ("counter", COMMON, None),
    "vllm:request_success_total": ("counter", COMMON | {"finished_reason"}, None),
    "vllm:time_to_first_token_seconds": ("histogram", COMMON, FIRST_TOKEN),
    "vllm:inter_token_latency_seconds": ("histogram", COMMON, INTER_TOKEN),
    "vllm:e2e_request_latency_seconds": ("histogram", COMMON, REQUEST),
    "vllm:request_queue_time_seconds": ("histogram", COMMON, REQUEST),
}


@pytest.fixture(scope="module")
def page():
    with Cluster(DEMO_MODEL, stages=2) as cluster:
        for _ in cluster.stub.Generate(pb.GenerateRequest(text="The next", sampling=pb.SamplingParams(max_tokens=4))):
            pass
        with urllib.request.urlopen(f"http://{cluster.metrics}/metrics") as answer:
            return answer.read().decode()


@pytest.mark.parametrize("name", NAMES)
def test_metric_matches_vllm(page, name):
    kind, labels, buckets = NAMES[name]
    assert re.search(rf"^# TYPE {name} (\w+)$", page, re.MULTILINE)[1] == kind
    series = name + ("_count" if buckets else "")
    values = re.findall(rf"^{series}{{(.*)}} (\S+)$", page, re.MULTILINE)
    assert values
    for found, _ in values:
        assert set(re.findall(r'(\w+)="', found)) == labels
    if buckets:
        assert float(values[0][1]) > 0, "never observed"
        bounds = re.findall(rf'^{name}_bucket{{.*le="([^"]+)"}}', page, re.MULTILINE)
        assert [float(b) for b in bounds] == [*buckets, float("inf")]


def test_waiting_by_priority_adds_up(page):
    assert set(re.findall(r'^stagecoach_queue_requests{.*priority="(\w+)"} 0$', page, re.MULTILINE)) == {
        "high", "normal", "low"}


def test_stage_times_add_up(page):
    for stage in ("0", "1"):
        seconds = dict(re.findall(rf'^stagecoach_stage_seconds_total{{.*stage="{stage}",state="(\w+)"}} (\S+)$', page, re.MULTILINE))
        assert set(seconds) == {"compute", "wait_input", "wait_mask", "wait_send", "idle"}
        assert float(seconds["compute"]) > 0
        assert float(re.search(rf'^stagecoach_stage_steps_total{{.*stage="{stage}"}} (\S+)$', page, re.MULTILINE)[1]) >= 4


def test_hops_are_counted_at_the_receiver(page):
    counts = re.findall(r'^stagecoach_stage_hop_seconds_count{.*stage="(\d)"} (\S+)$', page, re.MULTILINE)
    assert [stage for stage, _ in counts] == ["1"] and float(counts[0][1]) >= 4


def test_load_phases_and_memory_are_reported(page):
    assert set(re.findall(r'^stagecoach_stage_load_seconds{.*phase="(\w+)"}', page, re.MULTILINE)) == {
        "read", "profile", "prepare", "connect"}
    for kind in ("weights", "kv"):
        values = re.findall(rf'^stagecoach_stage_memory_bytes{{.*kind="{kind}"}} (\S+)$', page, re.MULTILINE)
        assert len(values) == 2 and all(float(value) > 0 for value in values)
