"""Reads the state of the GPUs with nvidia-smi."""
import os
import re
import subprocess
import time

FREE_LIMIT_S = 20  # a killed process's memory is freed a little later
IDLE_BYTES = 1 << 30  # an idle GPU may show a few hundred MiB as used


def output(*command, cwd=None):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=cwd).stdout.strip()
    except FileNotFoundError:
        return ""


def query(what, *flags):
    return output("nvidia-smi", *flags, f"--query-{what}", "--format=csv,noheader,nounits")


def all_gpus():
    """[(name, bytes)]"""
    return [(name, int(mib) << 20) for name, mib in re.findall(r"^(.+), (\d+)$", query("gpu=name,memory.total"), re.M)]


def driver():
    return next(iter(query("gpu=driver_version").splitlines()), "")


def _held(devices):
    """Descriptions of memory in use on these GPUs; empty: none. In a container nvidia-smi may list no process."""
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    ids = ("-i", ",".join(visible[i] if i < len(visible) else str(i) for i in devices))
    used = re.findall(r"^(.+), (\d+)$", query("gpu=index,memory.used", *ids), re.M)
    held = [f"GPU {gpu} has {mib} MiB in use" for gpu, mib in used if int(mib) << 20 > IDLE_BYTES]
    return held + [f"process {line}" for line in query("compute-apps=pid,process_name,used_memory", *ids).splitlines()
                   if re.match(r"\d+, ", line)]


def held_by_others(devices):
    """Like _held, but first waits for memory to be freed."""
    deadline = time.monotonic() + FREE_LIMIT_S
    while (held := _held(devices)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return held
