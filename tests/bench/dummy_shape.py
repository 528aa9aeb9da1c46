"""Servers with random weights, of which only the model's shape matters (`--load-format dummy`)."""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

from machine import default_bin
from servers import library_path

ROOT = pathlib.Path(__file__).parents[2]
LIKE = ROOT / "tests" / "golden" / "data" / "opt"


def programs(device):
    """The programs' folder; their libraries are found from now on."""
    bin_dir = pathlib.Path(os.environ.get("STAGECOACH_BIN_DIR") or default_bin(device))
    os.environ["LD_LIBRARY_PATH"] = library_path(bin_dir, device == "cuda")
    return bin_dir


@contextlib.contextmanager
def model_of_shape(like, shape):
    """A folder with a model of this shape (random_checkpoint.py) and of the architecture of `like`, without weights."""
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / shape
        subprocess.run([sys.executable, ROOT / "tests" / "bench" / "random_checkpoint.py", like, model, "--shape", shape,
                        "--config-only"], check=True)
        yield model
