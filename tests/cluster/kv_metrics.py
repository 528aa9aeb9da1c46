"""What the metrics page tells about the tiers of KV blocks."""
import re
import urllib.request


def kv_blocks(cluster):
    """{result: blocks over all stages}, and those that wait to be saved."""
    page = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{cluster.metrics}/metrics").read().decode()

    def total(name):
        return sum(int(float(value)) for value in re.findall(rf"^{name}\{{.*\}} (\S+)$", page, re.M))

    blocks = {result: total(f'stagecoach_stage_kv_store_blocks_total(?=.*result="{result}")')
              for result in ("saved", "dropped", "fetched", "missed")}
    return {**blocks, "waiting": total("stagecoach_stage_kv_store_waiting_blocks"),
            "in_host": total("stagecoach_stage_host_kv_blocks"), "from_host": total("stagecoach_stage_host_kv_hits_total"),
            "states_fetched": total('stagecoach_stage_kv_store_states_total(?=.*result="fetched")'),
            "saved_to_disk": total("stagecoach_stage_disk_kv_saves_total"),
            "from_disk": total("stagecoach_stage_disk_kv_hits_total")}
