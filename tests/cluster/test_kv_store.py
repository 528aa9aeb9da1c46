"""Servers that share KV blocks through a store: a prompt that another one has computed is computed only from where they
differ, and the answers are bit-identical, whatever happens to the store."""
import asyncio
import contextlib
import signal

import grpc
import pytest
from harness import STAGECOACH, Cluster, arguments_of, children_of, free_ports, wait_until
from kv_metrics import kv_blocks
from redis_server import RedisServer
from stagecoach.v1 import inference_pb2_grpc as pb_grpc
from test_prefix_cache import BLOCK, FLAGS, ask, random_ids, request
from toxiproxy import PROGRAM as TOXIPROXY
from toxiproxy import Toxiproxy
from workload import GOLDEN, kv_bytes

N_BLOCKS = 12
PROMPT = random_ids(N_BLOCKS * BLOCK + 5, 1)


def serve(model, stages, store, *flags):
    return Cluster(GOLDEN / model, stages=stages, flags=[*FLAGS, "--kv-store", store, "--host-kv", "16MiB", *flags])


def ask_and_save(model, stages, store, asked=None):
    """The answer of a server that computes the prompt and has saved its blocks."""
    with serve(model, stages, store) as server:
        answer = ask(server.stub, asked or request(PROMPT))
        assert answer[2] == 0, "it was in the store"
        wait_until(lambda: kv_blocks(server)["saved"] >= N_BLOCKS * stages, "the blocks in the store")
    return answer


# Full attention; a window in some layers; the same in all layers.
@pytest.mark.parametrize("model", ["opt", "gemma3", "mistral-window"])
@pytest.mark.parametrize("stages, other_stages", [(1, 2), (2, 1)])
def test_another_server_computes_only_the_rest(model, stages, other_stages, tmp_path):
    store = f"dir:{tmp_path}"
    answer = ask_and_save(model, stages, store)
    with serve(model, other_stages, store) as other:
        again = ask(other.stub, request(PROMPT))
        assert again[2] == N_BLOCKS * BLOCK
        assert again[:2] == answer[:2]
        assert kv_blocks(other)["fetched"] == N_BLOCKS * other_stages
        # The end differs; what this server has on the device now is not fetched again. Blocks behind a window it has not.
        other_end = PROMPT[:10 * BLOCK + 3] + random_ids(40, 2)
        assert ask(other.stub, request(other_end))[2] == 10 * BLOCK
        assert kv_blocks(other)["fetched"] == N_BLOCKS * other_stages or model != "opt"


def test_through_redis_between_servers_that_run():
    with RedisServer() as redis, serve("opt", 1, redis.url + "?ttl=600") as one, serve("opt", 2, redis.url) as other:
        answer = ask(one.stub, request(PROMPT))
        wait_until(lambda: kv_blocks(one)["saved"] >= N_BLOCKS, "the blocks in the store")
        assert 0 < int(redis.ask("TTL", redis.ask("RANDOMKEY"))) <= 600
        again = ask(other.stub, request(PROMPT))
        assert again[:2] == answer[:2]
        assert again[2] == N_BLOCKS * BLOCK


def test_a_tenant_that_fills_its_quota_takes_nothing_from_others(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-flood tenant=flood\nsk-quiet tenant=quiet\n")
    flags = ["--api-keys", keys]

    def ask_as(server, tenant, prompt):
        messages = server.stub.Generate(request(prompt), metadata=[("authorization", f"Bearer sk-{tenant}")])
        return list(messages)[-1].usage.cached_tokens

    flood = [random_ids(N_BLOCKS * BLOCK + 5, i) for i in range(10, 18)]
    with RedisServer() as redis:
        store = f"{redis.url}?quota={kv_bytes('opt', 1, 3 * N_BLOCKS)}"
        with serve("opt", 2, store, *flags) as server:
            ask_as(server, "quiet", PROMPT)
            wait_until(lambda: kv_blocks(server)["saved"] >= 2 * N_BLOCKS, "the quiet tenant's blocks in the store")
            for prompt in flood:
                ask_as(server, "flood", prompt)
            wait_until(lambda: kv_blocks(server)["saved"] >= 2 * N_BLOCKS * (1 + len(flood)), "all blocks in the store")
        with serve("opt", 1, store, *flags) as other:
            assert ask_as(other, "quiet", PROMPT) == N_BLOCKS * BLOCK
            assert ask_as(other, "flood", flood[-1]) == N_BLOCKS * BLOCK, "the newest blocks are there"
            assert ask_as(other, "flood", flood[0]) == 0, "the oldest ones made room"


def test_other_salts_models_and_adapters_share_nothing(tmp_path):
    store = f"dir:{tmp_path}"
    ask_and_save("opt", 1, store, request(PROMPT, salt="a"))
    with serve("opt", 1, store) as other:
        # First, because a stage that has computed prompts may find that computing is faster than reading.
        assert ask(other.stub, request(PROMPT, salt="a"))[2] == N_BLOCKS * BLOCK
        assert ask(other.stub, request(PROMPT, salt="b"))[2] == 0
        assert ask(other.stub, request(PROMPT))[2] == 0
    with serve("mistral-window", 1, store) as other:
        assert ask(other.stub, request(PROMPT, salt="a"))[2] == 0


async def generate(address, prompts):
    """[(tokens, cached)] of concurrent requests."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = pb_grpc.InferenceStub(channel)

        async def one(prompt):
            messages = [message async for message in stub.Generate(request(prompt))]
            return [i for message in messages for i in message.token_ids], messages[-1].usage.cached_tokens

        return await asyncio.gather(*map(one, prompts))


def prompts_of(seed, n=24):
    return [random_ids(5 * BLOCK, seed) + random_ids(3 * BLOCK, 100 * seed + i) for i in range(n)]


def damage(redis):
    """Half of the values lose their last byte, others swap places."""
    keys = redis.ask("--raw", "KEYS", "*").split()
    assert len(keys) > 10
    for i, key in enumerate(sorted(keys)):
        if i % 2:
            redis.ask("SETRANGE", key, "200", "damaged")
        elif i + 2 < len(keys):
            redis.ask("COPY", keys[i + 2], key, "REPLACE")


FAULTS = {
    "killed": lambda redis, proxy: redis.process.kill(),
    "stopped": lambda redis, proxy: redis.process.send_signal(signal.SIGSTOP),
    "slow": lambda redis, proxy: proxy.delay(300),
    "cut": lambda redis, proxy: proxy.cut(),
    "full": lambda redis, proxy: [redis.ask("CONFIG", "SET", "maxmemory", "1"),
                                  redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")],
    "damaged": lambda redis, proxy: damage(redis),
}


@pytest.mark.skipif(not TOXIPROXY.exists(), reason="no toxiproxy here")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_store_costs_no_request(fault):
    with Cluster(GOLDEN / "opt", flags=[*FLAGS, "--prefix-cache", "off"]) as plain:
        expected = {seed: [tokens for tokens, _ in asyncio.run(generate(plain.grpc, prompts_of(seed)))] for seed in (1, 2)}
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        ports = free_ports(2)
        address = f"127.0.0.1:{ports + 1}"
        proxy = Toxiproxy(stack, ports, address, redis.url.removeprefix("redis://"))
        with serve("opt", 2, f"redis://{address}") as one:
            assert [tokens for tokens, _ in asyncio.run(generate(one.grpc, prompts_of(1)))] == expected[1]
        with serve("opt", 2, f"redis://{address}") as other:
            FAULTS[fault](redis, proxy)
            for seed in (1, 2):
                assert [tokens for tokens, _ in asyncio.run(generate(other.grpc, prompts_of(seed)))] == expected[seed]
            if fault in ("killed", "stopped"):
                assert other.log().count("reads fail") == 2, "once for each stage"
            redis.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("stages", [1, 2])
def test_host_memory_keeps_what_the_device_has_no_room_for(stages):
    n_blocks = 20
    flags = [*FLAGS, "--kv-memory", kv_bytes("opt", stages, n_blocks), "--max-model-len", 256]
    prompts = [random_ids(N_BLOCKS * BLOCK + 5, i) for i in range(4)]
    with Cluster(GOLDEN / "opt", stages=stages, flags=flags) as plain:
        answers = [ask(plain.stub, request(prompt)) for prompt in prompts]
        assert ask(plain.stub, request(prompts[0]))[2] < N_BLOCKS * BLOCK
    with Cluster(GOLDEN / "opt", stages=stages, flags=[*flags, "--host-kv", "64MiB"]) as server:
        assert [ask(server.stub, request(prompt)) for prompt in prompts] == answers
        wait_until(lambda: kv_blocks(server)["in_host"] >= len(prompts) * N_BLOCKS * stages, "the blocks in host memory")
        for prompt, answer in zip(prompts, answers, strict=True):
            again = ask(server.stub, request(prompt))
            assert again[:2] == answer[:2]
            assert again[2] == N_BLOCKS * BLOCK
        assert kv_blocks(server)["from_host"] > 0


@pytest.mark.parametrize("stages, other_stages", [(1, 1), (2, 2), (1, 2), (2, 1)])
def test_blocks_on_disk_outlive_the_server(stages, other_stages, tmp_path):
    flags = [*FLAGS, "--disk-kv", f"{tmp_path}:64MiB"]
    with Cluster(GOLDEN / "opt", stages=stages, flags=flags) as server:
        answer = ask(server.stub, request(PROMPT))
        wait_until(lambda: kv_blocks(server)["saved_to_disk"] >= N_BLOCKS * stages, "the blocks on disk")
    with Cluster(GOLDEN / "opt", stages=other_stages, flags=flags) as again:
        messages = list(again.stub.Generate(request(PROMPT)))
        assert [i for message in messages for i in message.token_ids] == answer[0]
        assert messages[-1].usage.cached_tokens == messages[-1].usage.stored_tokens.disk == N_BLOCKS * BLOCK
        assert kv_blocks(again)["from_disk"] == N_BLOCKS * other_stages


def test_a_disk_that_fails_costs_no_request(tmp_path):
    with Cluster(GOLDEN / "opt", flags=[*FLAGS, "--prefix-cache", "off"]) as plain:
        expected = {seed: [tokens for tokens, _ in asyncio.run(generate(plain.grpc, prompts_of(seed)))] for seed in (1, 2)}
    disk = tmp_path / "disk"
    with Cluster(GOLDEN / "opt", stages=2, flags=[*FLAGS, "--disk-kv", f"{disk}:64MiB"]) as server:
        assert [tokens for tokens, _ in asyncio.run(generate(server.grpc, prompts_of(1)))] == expected[1]
        disk.rename(tmp_path / "moved")
        disk.write_text("no folder")
        for seed in (1, 2):
            assert [tokens for tokens, _ in asyncio.run(generate(server.grpc, prompts_of(seed)))] == expected[seed]
    disk.unlink()
    # A bound of three blocks for each stage: old ones give way at once.
    with Cluster(GOLDEN / "opt", stages=2, flags=[*FLAGS, "--disk-kv", f"{disk}:256KiB"]) as server:
        for seed in (1, 2):
            assert [tokens for tokens, _ in asyncio.run(generate(server.grpc, prompts_of(seed)))] == expected[seed]
        wait_until(lambda: kv_blocks(server)["waiting"] == 0, "nothing to save")
        assert 0 < sum(path.stat().st_size for path in disk.rglob("*") if path.is_file()) <= 256 << 10


def test_a_full_disk_costs_no_request(tmp_path):
    with Cluster(GOLDEN / "opt", flags=[*FLAGS, "--prefix-cache", "off"]) as plain:
        expected = {seed: [tokens for tokens, _ in asyncio.run(generate(plain.grpc, prompts_of(seed)))] for seed in (1, 2)}
    # A file system of 1 MiB in a mount namespace of the server's own; the server may take 64 MiB.
    on_small_disk = tmp_path / "on_small_disk"
    on_small_disk.write_text(f"#!/bin/sh\nmount -t tmpfs -o size=1m none {tmp_path} && exec {STAGECOACH} \"$@\"\n")
    on_small_disk.chmod(0o755)
    in_namespace = tmp_path.parent / f"{tmp_path.name}_namespace"
    in_namespace.write_text(f"#!/bin/sh\nexec unshare --map-root-user --mount {on_small_disk} \"$@\"\n")
    in_namespace.chmod(0o755)
    flags = [*FLAGS, "--disk-kv", f"{tmp_path}/disk:64MiB"]
    with Cluster(GOLDEN / "opt", stages=2, flags=flags, program=in_namespace) as server:
        for seed in (1, 2, 1, 2):
            assert [tokens for tokens, _ in asyncio.run(generate(server.grpc, prompts_of(seed)))] == expected[seed]
        wait_until(lambda: kv_blocks(server)["waiting"] == 0, "nothing to save")
        assert "No space left on device" in server.log()


def test_a_url_in_the_environment_is_in_no_command_line(tmp_path, monkeypatch):
    monkeypatch.setenv("STAGECOACH_KV_STORE", f"dir:{tmp_path}")
    with Cluster(GOLDEN / "opt", flags=FLAGS) as server:
        ask(server.stub, request(PROMPT))
        wait_until(lambda: kv_blocks(server)["saved"] >= N_BLOCKS, "the blocks in the store")
        children = children_of(server.process.pid)
        assert len(children) == 2
        assert not any(str(tmp_path) in " ".join(arguments_of(pid)) for pid, _ in children)


def test_a_store_that_nobody_can_use_is_named_at_the_start(tmp_path):
    with pytest.raises(AssertionError, match="cannot load: --kv-store: a store for KV blocks is redis://"):
        serve("opt", 1, "ftp://x").start()
