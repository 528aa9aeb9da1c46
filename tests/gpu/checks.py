"""What a part is made of."""
import dataclasses
import typing

from servers import Spec


class LeftOut(Exception):
    """It turned out that a check cannot run here."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One look at one server. `run(server, results)` adds its lines; an exception is its failure, CheckFailed one that leaves
    the server fit for the next; LeftOut is none."""
    name: str  # part/what
    spec: Spec | None  # None: it needs no server
    run: typing.Callable
    limit_s: float
    ends_server: bool = False  # it is no good afterwards
    why_not: str = ""  # it cannot run here
    mode: str = ""  # those with the same one fail alike: not all are tried
    sizes: dict = dataclasses.field(default_factory=dict)  # numbers of this run: with others it is another check

    @property
    def part(self):
        return self.name.split("/")[0]


@dataclasses.dataclass
class Options:
    """What all parts go by."""
    device: str
    stages: list  # numbers of stages to try
    smoke: bool
    bin_dir: object  # pathlib.Path, of the programs
    models: object  # shapes.Models
    starts: int  # of the waves, as the next two
    waves: int
    fractions: list
    speed_flags: tuple  # for the servers of `speed`, beside its own
    gpu_bytes: int | None  # memory of one
    n_gpus: int = 0  # of the machine

    def small(self, full, smoke):
        """A count, or the one that will do for a smoke run."""
        return smoke if self.smoke else full

    def flags(self, *flags):
        """Of a server. A smoke run's cache is small, unless the flags say how large."""
        given = tuple(str(flag) for flag in flags)
        return given + (("--kv-memory", "16MiB") if self.smoke and "--kv-memory" not in given else ())

    @property
    def several(self):
        return [stages for stages in self.stages if stages > 1]


def of_stages(model, stages):
    """How a result's name begins: the names in tests/bench/results/{cuda_serve,nccl}.jsonl."""
    return model if stages == 1 else f"nccl/{model}/{stages}_stages"
