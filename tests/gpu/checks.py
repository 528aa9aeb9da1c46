"""The checks that a part consists of, and the options of a run."""
import dataclasses
import typing

from servers import Spec


class LeftOut(Exception):
    """A check found at run time that it cannot run on this machine."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One check of one server. `run(server, results)` adds the result lines. CheckFailed is a failure after which the
    server can be used for the next check; LeftOut is no failure; after any other exception the server is killed."""
    name: str  # part/what
    spec: Spec | None  # None: needs no server
    run: typing.Callable
    limit_s: float
    ends_server: bool = False  # the server cannot be used afterwards
    why_not: str = ""  # reason why the check cannot run on this machine
    # Checks of the same mode fail in the same way; after a few failures the rest is left out.
    mode: str = ""
    sizes: dict = dataclasses.field(default_factory=dict)  # sizes of this run; with other sizes it counts as another check

    @property
    def part(self):
        return self.name.split("/")[0]


@dataclasses.dataclass
class Options:
    """Options for all parts."""
    device: str
    stages: list  # numbers of stages to try
    smoke: bool
    bin_dir: object  # pathlib.Path: folder of the programs
    models: object  # shapes.Models
    starts: int  # for the waves, like the next two
    waves: int
    fractions: list
    speed_flags: tuple  # additional flags for the servers of `speed`
    gpu_bytes: int | None  # memory of the smallest GPU
    n_gpus: int = 0  # GPUs of the machine
    devices: tuple = ()  # GPU of each stage; empty: one each

    def small(self, full, smoke):
        """`full`, or `smoke` in a smoke run."""
        return smoke if self.smoke else full

    def flags(self, *flags):
        """Flags of a server. A smoke run uses a small KV cache unless the flags give its size."""
        given = tuple(str(flag) for flag in flags)
        return given + (("--kv-memory", "16MiB") if self.smoke and "--kv-memory" not in given else ())

    def memory_fraction(self, fraction, stages):
        """`fraction` of a GPU's memory for all stages on it: that of one stage."""
        here = self.devices[:stages]
        return fraction / max((here.count(device) for device in here), default=1)

    @property
    def several(self):
        return [stages for stages in self.stages if stages > 1]


def of_stages(model, stages):
    """Prefix of a result's name, as in tests/bench/results/{cuda_serve,nccl}.jsonl."""
    return model if stages == 1 else f"nccl/{model}/{stages}_stages"
