"""Result lines: each is printed and appended to the output file as soon as it is known.

A line with a "name" is a result in the format of tests/bench/results. A line with a "state" says how a check ended, for
--resume. Each line names its commit, the model of its GPUs and the placement of its stages; lines with other values are
ignored.
"""
import dataclasses
import datetime
import json
import pathlib
import statistics


@dataclasses.dataclass(frozen=True)
class Goal:
    number: float
    at_most: bool
    why: str = ""

    def is_met(self, value):
        return value <= self.number if self.at_most else value >= self.number

    def __str__(self):
        return f"at {'most' if self.at_most else 'least'} {self.number:,.6g}" + (f" ({self.why})" if self.why else "")


def at_most(number, why=""):
    return Goal(number, True, why)


def at_least(number, why=""):
    return Goal(number, False, why)


def read_lines(path):
    """Reads all complete lines: an interrupted run may have left half a line."""
    lines = []
    for text in pathlib.Path(path).read_text().splitlines() if path and pathlib.Path(path).exists() else ():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def emit(line, path):
    """Prints a result as JSON, and appends it to the file `path`; None: prints only."""
    text = json.dumps(line)
    print(text, flush=True)
    if path:
        with open(path, "a") as out:
            out.write(text + "\n")


def spread(values):
    """Number, median and maximum of seconds."""
    return {"n": len(values), "median": round(statistics.median(values), 3) if values else None,
            "max": round(max(values), 3) if values else None}


NO_ONE_STAGE = "no 1-stage line"


def short(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


class Results:
    def __init__(self, path, known, common, smoke=False, placed=lambda n_stages: {}):
        """`known`: lines of earlier runs. `common`: fields of every line (machine, commit, gpu). `placed(n_stages)`:
        further fields for a server with n_stages stages. Names of a smoke run begin with "smoke/"; its values come from
        other models and are not compared with goals."""
        self._path = path and pathlib.Path(path)
        self._common = common
        self._placed = placed
        self._smoke = smoke
        self._prefix = "smoke/" if smoke else ""
        self._lines = [line for line in known if self._counts(line)]
        self.n_of_others = len(known) - len(self._lines)
        self._n_known = len(self._lines)
        self.beside = {}  # additional fields for lines of the current server
        if self._path and self._path.exists() and not self._path.read_bytes().endswith(b"\n"):
            with open(self._path, "a") as out:
                out.write("\n")  # the incomplete line stays separate

    def _counts(self, line):
        """Whether a line has this commit, GPU model, stage placement and kind of run (part of a result's name)."""
        placed = self._placed(line["n_stages"]) if "n_stages" in line else {}
        return (all(line.get(key) == value for key, value in placed.items())
                and all(line.get(key) == self._common[key] for key in ("commit", "gpu"))
                and ("name" in line or line.get("smoke") == self._smoke))

    def add(self, name, value, unit, command, goal=None, reference=None, reference_value=None, no_goal=None, **more):
        """`ratio` is relative to the goal, else to `reference_value`, which `reference` describes. `no_goal`: why there
        is no goal."""
        other = goal.number if goal else reference_value
        said = [f"goal: {goal}"] if goal else [f"no goal: {no_goal}"] if no_goal else []
        if reference is not None or reference_value is not None:
            said.append(": ".join(s for s in (reference, reference_value is not None and f"{reference_value:,.6g}") if s))
        line = dict(name=self._prefix + name, value=round(value, 4), unit=unit, reference="; ".join(said) or None,
                    ratio=round(value / other, 4) if other and not self._smoke else None,
                    **({"met": goal.is_met(value)} if goal and not self._smoke else {}), **more, **self.beside, **self._common,
                    date=str(datetime.date.today()), command=command)
        self._append(line)
        print(self.row(line), flush=True)
        return line

    def of_server(self, n_stages):
        """Fields of the lines about a server with n_stages stages."""
        return {"n_stages": n_stages, **self._placed(n_stages)}

    def end(self, check, state, seconds, error=None, **more):
        self._append(dict(check=check, state=state, seconds=round(seconds, 1), **({"error": error} if error else {}), **more,
                          smoke=self._smoke, commit=self._common["commit"], gpu=self._common["gpu"]))

    def has_ended(self, check, states):
        """Whether the check, with its sizes, ended in one of `states`."""
        return any(line.get("check") == check.name and line["state"] in states and check.sizes.items() <= line.items()
                   for line in self._lines)

    def failures(self):
        """{check: error} of the checks whose newest run failed."""
        newest = {line["check"]: line for line in self._lines if "state" in line}
        return {check: line.get("error", "") for check, line in newest.items() if line["state"] == "failed"}

    def failures_before(self):
        """The same without checks of this run."""
        here = {line["check"] for line in self._lines[self._n_known:] if "state" in line}
        return {check: error for check, error in self.failures().items() if check not in here}

    def _append(self, line):
        self._lines.append(line)
        if self._path:
            with open(self._path, "a") as out:
                out.write(json.dumps(line) + "\n")

    def find(self, name, **fields):
        """The newest line with that name and those fields, or None."""
        wanted = {"name": self._prefix + name, **fields}
        return next((line for line in reversed(self._lines) if wanted.items() <= line.items()), None)

    def missed(self):
        """The newest lines that miss their goal."""
        return [line for line in {line["name"]: line for line in self._lines if "name" in line}.values() if line.get("met") is False]

    def value(self, name):
        line = self.find(name)
        return line and line["value"]

    def named(self, start):
        """The newest line of each name with that prefix."""
        return list({line["name"]: line for line in self._lines if line.get("name", "").startswith(self._prefix + start)}.values())

    @staticmethod
    def row(line):
        verdict = {True: "met", False: "MISSED"}.get(line.get("met"), "")
        ratio = "" if line["ratio"] is None else f"{line['ratio']:.3f}"
        said = "; ".join(filter(None, (line["unit"], line["reference"])))
        return f"{line['name']:<66} {short(line['value']):>10} {ratio:>8} {verdict:<6}  {said}"[:200]

    def table(self):
        """A table of the lines that this run added."""
        head = f"{'name':<66} {'value':>10} {'ratio':>8} {'goal':<6}  unit; reference"
        return "\n".join([head, *(self.row(line) for line in self._lines[self._n_known:] if "name" in line)])
