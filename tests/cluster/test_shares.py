"""Two tenants of a real server: one floods it from 300 connections with the best priority that its key allows, the
other still gets its weighted fair share of the computed tokens."""
import asyncio

import pytest
from harness import DEMO_MODEL, Cluster
from tenants import Load, ask_for_metrics, tokens_computed

KEYS = "sk-flood tenant=flood weight={}\nsk-quiet tenant=quiet weight={}\n"
TOP_PRIORITY = -100  # a key's default limit


def serve(folder, weights, *flags):
    keys = folder / "keys"
    keys.write_text(KEYS.format(*weights))
    return Cluster(DEMO_MODEL, flags=["--api-keys", keys, *flags])


async def tokens_while_both_wait(cluster, quiet_connections, n_served):
    """{tenant: computed tokens} between two moments: when both tenants have more requests than slots, and when the
    quiet one has been served n_served times."""
    async with Load(cluster.http, "sk-flood", 300, priority=TOP_PRIORITY) as flood:
        await flood.served(30)
        async with Load(cluster.http, "sk-quiet", quiet_connections) as quiet:
            await quiet.served(quiet_connections)
            before = tokens_computed(await ask_for_metrics(cluster.metrics))
            await quiet.served(quiet_connections + n_served)
            after = tokens_computed(await ask_for_metrics(cluster.metrics))
            assert quiet.n_refused == 0
    return {tenant: after[tenant] - before[tenant] for tenant in after}


@pytest.mark.parametrize("weights", [pytest.param((1, 1), marks=pytest.mark.long), (1, 3), pytest.param((3, 1), marks=pytest.mark.long)])
def test_a_flood_leaves_the_other_tenant_its_share(tmp_path, weights):
    with serve(tmp_path, weights, "--max-sequences", "8") as cluster:
        tokens = asyncio.run(tokens_while_both_wait(cluster, quiet_connections=24, n_served=60))
    share = weights[1] / sum(weights)
    assert tokens["quiet"] >= 0.8 * share * sum(tokens.values()), tokens
    # The quiet tenant does not take the flood's share either.
    assert tokens["flood"] >= 0.8 * (1 - share) * sum(tokens.values()), tokens


def test_a_full_queue_refuses_only_the_flood(tmp_path):
    flags = ["--max-sequences", "4", "--max-waiting", "200"]
    with serve(tmp_path, (1, 1), *flags) as cluster:
        async def run():
            async with Load(cluster.http, "sk-flood", 300, priority=TOP_PRIORITY) as flood:
                await flood.served(5)
                async with Load(cluster.http, "sk-quiet", 15) as quiet:
                    await quiet.served(40)
                    return flood.n_refused, quiet.n_refused
        flood_refused, quiet_refused = asyncio.run(run())
    assert flood_refused > 0 and quiet_refused == 0
