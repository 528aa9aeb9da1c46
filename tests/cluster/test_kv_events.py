"""KV events in vLLM's form: who follows them knows which prompts the prefix cache holds. So does llm-d's own indexer."""
import contextlib
import json
import os
import signal
import subprocess
import urllib.request

import pytest
from harness import Cluster, wait_until
from kv_event_index import BLOCK, Index, Listener
from lost_stages import await_workers
from protos import ROOT
from test_prefix_cache import FLAGS, ask, metric, random_ids, request
from workload import GOLDEN, kv_bytes

INDEXER = ROOT / "build" / "tools" / "kv-events-indexer"  # llm-d's, built by `tests/run.sh cluster`
TOPIC = "kv@10.0.0.7:8000@opt"
PORTS = ["--kv-events", "tcp://127.0.0.1:*", "--kv-events-replay", "tcp://127.0.0.1:*", "--kv-events-topic", TOPIC]


@contextlib.contextmanager
def serve(*flags, model="opt", stages=1):
    """A server and a listener that has heard its first events."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(GOLDEN / model, stages=stages, flags=[*FLAGS, *PORTS, *flags]))
        listener = Listener(stack, cluster, TOPIC)
        seeds = iter(range(10**6, 2 * 10**6))

        def hears():
            ask(cluster.stub, request(random_ids(BLOCK + 1, next(seeds)), max_tokens=1))
            listener.read()
            return listener.payloads

        wait_until(hears, "the first event")
        yield cluster, listener


def answered(cluster, prompt, n=8, salt=""):
    """The tokens of prompt and answer whose keys and values are computed: all but the last."""
    return (prompt + ask(cluster.stub, request(prompt, max_tokens=n, salt=salt))[0])[:-1]


def await_found(listener, tokens, n=None):
    n = len(tokens) // BLOCK if n is None else n
    wait_until(lambda: listener.read().found(tokens) == n, f"{n} blocks in the index")


# Full attention; a window in some layers; the same in all layers.
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("model", ["opt", "gemma3", "mistral-window"])
def test_events_tell_what_is_computed(model, stages):
    with serve(model=model, stages=stages) as (cluster, listener):
        first = answered(cluster, random_ids(5 * BLOCK + 3, 1), 30)
        await_found(listener, first)
        other = answered(cluster, first[:3 * BLOCK] + random_ids(40, 2))
        await_found(listener, other)
        await_found(listener, first)
        again = ask(cluster.stub, request(first))
        assert again[2] == (len(first) - 1) // BLOCK * BLOCK
        assert metric(cluster, "stagecoach_kv_events_dropped_total") == 0
        assert metric(cluster, "stagecoach_kv_events_published_total") >= len(listener.payloads) > 0


def test_a_replay_has_what_a_late_listener_missed():
    with serve() as (cluster, listener), contextlib.ExitStack() as stack:
        tokens = answered(cluster, random_ids(100, 1))
        await_found(listener, tokens)
        late = Listener(stack, cluster, TOPIC)
        replayed = late.replay(0)
        assert replayed[:len(listener.payloads)] == list(enumerate(listener.payloads))
        index = Index()
        for _, payload in replayed:
            index.apply(payload)
        assert index.found(tokens) == len(tokens) // BLOCK
        n = len(replayed)
        assert late.replay(n - 1) == replayed[-1:]
        assert late.replay(n) == []
        assert metric(cluster, "stagecoach_kv_events_replays_total") >= 3


def test_overwritten_blocks_are_removed():
    n_blocks = 40
    flags = ["--kv-memory", kv_bytes("opt", 1, n_blocks), "--max-model-len", 256]
    with serve(*flags) as (cluster, listener):
        assert cluster.kv_blocks == n_blocks
        asked = [answered(cluster, random_ids(6 * BLOCK, seed)) for seed in range(20)]
        await_found(listener, asked[-1])  # all events before it have come, too
        assert listener.index.n_removed > n_blocks
        assert len(listener.index.blocks[0]) <= n_blocks
        found = [listener.index.found(tokens) for tokens in asked]
        assert found[0] == 0 and found[-2] == len(asked[-2]) // BLOCK
        # What the index says is what the server finds.
        assert ask(cluster.stub, request(asked[-2]))[2] == min(found[-2], (len(asked[-2]) - 1) // BLOCK) * BLOCK
        assert ask(cluster.stub, request(asked[0]))[2] == 0


def lose_memory(cluster, stage):
    """The replacement of a worker that has failed by itself does not use its memory."""
    os.kill(await_workers(cluster)[stage], signal.SIGSEGV)


def test_a_stage_that_is_lost_with_its_memory_clears_everything():
    with serve(stages=2) as (cluster, listener):
        prompt = random_ids(100, 1)
        tokens = answered(cluster, prompt)
        await_found(listener, tokens)
        n_cleared = listener.index.n_cleared
        lose_memory(cluster, 1)
        answered(cluster, random_ids(50, 2))  # waits for the stage's replacement
        wait_until(lambda: listener.read().n_cleared > n_cleared, "the end of all blocks")
        assert listener.index.found(tokens) == 0
        assert answered(cluster, prompt) == tokens
        await_found(listener, tokens)


def test_a_stage_whose_memory_outlives_it_clears_nothing():
    with serve(stages=2) as (cluster, listener):
        tokens = answered(cluster, random_ids(100, 1))
        await_found(listener, tokens)
        n_cleared = listener.index.n_cleared
        os.kill(await_workers(cluster)[1], signal.SIGKILL)
        other = answered(cluster, random_ids(50, 2))
        await_found(listener, other)
        assert (listener.index.n_cleared, listener.index.found(tokens)) == (n_cleared, len(tokens) // BLOCK)
        assert ask(cluster.stub, request(tokens))[2] == (len(tokens) - 1) // BLOCK * BLOCK


def test_blocks_under_a_salt_are_not_told():
    with serve() as (cluster, listener):
        tokens = answered(cluster, random_ids(100, 1), salt="secret")
        other = answered(cluster, random_ids(100, 2))
        await_found(listener, other)
        assert listener.index.found(tokens) == 0
        assert not any(b"secret" in payload for payload in listener.payloads)


def test_each_replica_has_its_rank():
    with serve("--replicas", 2) as (cluster, listener):
        seeds = iter(range(1000))

        def both_have_blocks():
            answered(cluster, random_ids(60, next(seeds)))
            blocks = listener.read().blocks
            return blocks.get(0) and blocks.get(1)

        wait_until(both_have_blocks, "events of both replicas")
        assert set(listener.index.blocks) == {0, 1}


class LlmD:
    """llm-d's indexer, which listens to the server."""

    def __init__(self, stack, cluster):
        self._process = stack.enter_context(subprocess.Popen(
            [INDEXER, cluster.kv_events, TOPIC.rpartition("@")[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True))
        stack.callback(self._process.kill)

    def found(self, tokens):
        """{pod: blocks at the start of `tokens` that it holds}"""
        self._process.stdin.write(json.dumps(tokens) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def await_found(self, tokens):
        wait_until(lambda: self.found(tokens) == {"10.0.0.7:8000": len(tokens) // BLOCK}, "the blocks in llm-d's index")


@pytest.mark.skipif(not INDEXER.exists(), reason="no kv-events-indexer here")
def test_llm_d_follows():
    flags = ["--kv-memory", kv_bytes("opt", 2, 40), "--max-model-len", 256]
    with serve(*flags, stages=2) as (cluster, listener), contextlib.ExitStack() as stack:
        llm_d = LlmD(stack, cluster)
        seeds = iter(range(2 * 10**7, 3 * 10**7))
        wait_until(lambda: llm_d.found(answered(cluster, random_ids(60, next(seeds)))), "the first block in llm-d's index")
        prompt = random_ids(5 * BLOCK + 3, 1)
        first = answered(cluster, prompt, 30)
        llm_d.await_found(first)
        other = answered(cluster, first[:3 * BLOCK] + random_ids(40, 2))
        llm_d.await_found(other)
        for seed in range(20):  # overwrites both
            last = answered(cluster, random_ids(6 * BLOCK, 10**7 + seed))
        llm_d.await_found(last)
        assert llm_d.found(first) == llm_d.found(other) == {}
        lose_memory(cluster, 0)
        again = answered(cluster, prompt, 30)
        assert again == first
        llm_d.await_found(first)
        assert llm_d.found(last) == {}


def test_without_the_flag_nothing_is_published():
    with Cluster(GOLDEN / "opt", flags=FLAGS) as cluster:
        assert cluster.kv_events is None
        page = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{cluster.metrics}/metrics").read()
        assert b"kv_events" not in page


@pytest.mark.parametrize("flags, says", [
    (["--kv-events", "127.0.0.1:5556"], "tcp://HOST:PORT"),
    (["--kv-events-topic", "t"], "--kv-events"),
    (["--kv-events", "tcp://*:*", "--prefix-cache", "off"], "--prefix-cache is off"),
    (["--kv-events", "tcp://*:*", "--api-keys", "/proc/self/exe"], "one tenant only"),
])
def test_impossible_flags_are_named(flags, says):
    with pytest.raises(AssertionError, match="did not start") as failure:
        Cluster(GOLDEN / "opt", flags=[*FLAGS, *flags]).start()
    assert says in str(failure.value)


def test_a_port_that_is_taken_is_named():
    with Cluster(GOLDEN / "opt", flags=[*FLAGS, "--kv-events", "tcp://127.0.0.1:*"]) as one:
        with pytest.raises(AssertionError, match="did not start") as failure:
            Cluster(GOLDEN / "opt", flags=[*FLAGS, *PORTS[:2], "--kv-events-replay", one.kv_events]).start()
        assert f"--kv-events-replay {one.kv_events}" in str(failure.value)
