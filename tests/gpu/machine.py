"""Names the machine of a run, and the programs that it tries."""
import collections
import os
import platform

import gpus
import shapes


def machine_of(device, found):
    if device == "cpu":
        return f"{os.cpu_count()} cores, {platform.machine()}"
    driver = gpus.driver()
    names = collections.Counter(name for name, _ in found)
    return (", ".join(f"{n} {name}" for name, n in names.items()) + f", {os.cpu_count()} cores"
            + (f", driver {driver}" if driver else ""))


def model_of(device, found):
    """The GPU models, without their number: values of different models are not compared."""
    return "CPU" if device == "cpu" else ", ".join(sorted({name for name, _ in found}))


def commit_of():
    packed = shapes.ROOT / "COMMIT"
    if packed.exists():
        return packed.read_text().strip()
    return gpus.output("git", "rev-parse", "--short", "HEAD", cwd=shapes.ROOT) or "unknown"


def default_bin(device):
    """The programs' folder in a bundle, or in a build."""
    packed = shapes.ROOT / "bin"
    return packed if packed.is_dir() else shapes.ROOT / "build" / device / "bin"
