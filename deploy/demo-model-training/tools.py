"""Tools that a visitor's program may offer, their results, and the desk's answers from a result.

A result may differ from the desk's own timetable, as after a change of the timetable. So the answer
must take its times and fares from the result.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

import timetable as tt
from answers import ON_DAY, Query, capital, join

CALL_BEGIN, CALL_END = "<tool_call>\n", "\n</tool_call>"
RESULT_BEGIN, RESULT_END = "<tool_response>\n", "\n</tool_response>"
DEPARTURE_TASKS = frozenset({"departures", "first", "last", "next", "by", "arrival", "check",
                             "count"})
NEED_ARRIVALS = frozenset({"by", "arrival"})
OWN_TIMETABLE_SHARE = 0.15  # of results; in the others the times are random

_STOP_NAMES = (("from", "to"),) * 3 + (("origin", "destination"),)
_NOTES = {
    "departures": ("Departures of the coaches between two stops on a day.", "The timetable.",
                   "Returns the departures from one stop to another.", "Look up departures.",
                   "Departures between two stops", "Get the departure times of a day."),
    "fare": ("The fare between two stops.", "Returns the price of a ticket.", "Look up a fare.",
             "Fares of adults and children."),
    "from": ("Where the journey begins", "a stop", "The first stop."),
    "to": ("Where the journey ends", "a stop", "The last stop."),
    "day": ("The kind of day", "weekday, saturday or sunday", "The day of the timetable."),
}
_OTHERS = (
    ("weather", "The weather of a city.", "city"), ("get_weather", "Get the weather.", "location"),
    ("send_mail", "Sends a mail.", "text"), ("search", "Searches the web.", "query"),
    ("calculator", "Calculates.", "expression"), ("read_file", "Reads a file.", "path"),
)


@dataclass(frozen=True)
class Tool:
    kind: str  # "departures", "fare", or "" for a tool that does not help the desk
    arguments: tuple[str, ...]
    definition: dict  # as in OpenAI's API

    @property
    def name(self) -> str:
        return self.definition["function"]["name"]


def _tool(rng: random.Random, kind: str, name: str, note: str, properties: dict) -> Tool:
    parameters = {"type": "object", "properties": properties}
    if rng.random() < 0.85:
        parameters["required"] = list(properties)
    if rng.random() < 0.4:
        parameters["additionalProperties"] = False
    function = {"name": name, "description": note, "parameters": parameters}
    if rng.random() < 0.2:
        del function["description"]
    if rng.random() < 0.1:
        function["strict"] = True
    return Tool(kind, tuple(properties), {"type": "function", "function": function})


def _text(rng: random.Random, key: str) -> dict:
    value = {"type": "string"}
    return value | {"description": rng.choice(_NOTES[key])} if rng.random() < 0.35 else value


def departures_tool(rng: random.Random) -> Tool:
    origin, destination = rng.choice(_STOP_NAMES)
    day = _text(rng, "day")
    if rng.random() < 0.5:
        day["enum"] = list(tt.DAYS)
    name = rng.choice(("departures",) * 3 + ("get_departures",))
    return _tool(rng, "departures", name, rng.choice(_NOTES["departures"]), {
        origin: _text(rng, "from"), destination: _text(rng, "to"), "day": day})


def fare_tool(rng: random.Random) -> Tool:
    origin, destination = rng.choice(_STOP_NAMES)
    name = rng.choice(("fare",) * 3 + ("get_fare",))
    return _tool(rng, "fare", name, rng.choice(_NOTES["fare"]), {
        origin: _text(rng, "from"), destination: _text(rng, "to")})


def offered_tools(rng: random.Random) -> list[Tool]:
    kinds = rng.choices((("departures",), ("departures", "fare"), ("fare",), ()), (60, 25, 5, 10))[0]
    tools = [departures_tool(rng) if kind == "departures" else fare_tool(rng) for kind in kinds]
    if not tools or rng.random() < 0.1:
        name, note, key = rng.choice(_OTHERS)
        tools.append(_tool(rng, "", name, note, {key: {"type": "string"}}))
    rng.shuffle(tools)
    return tools


def tool_for(q: Query, tools: list[Tool]) -> Tool | None:
    """The tool that helps to answer the question; None if none does."""
    kind = "departures" if q.task in DEPARTURE_TASKS else "fare" if q.task == "fare" else ""
    return next((tool for tool in tools if kind and tool.kind == kind), None)


def arguments_of(q: Query, tool: Tool) -> dict:
    return dict(zip(tool.arguments, (q.origin, q.destination, q.day)))


def call_text(name: str, arguments: dict) -> str:
    return CALL_BEGIN + json.dumps({"name": name, "arguments": arguments}) + CALL_END


@dataclass(frozen=True)
class Ride:
    departure: int
    arrival: int | None  # None: the result does not say


def _random_rides(rng: random.Random, q: Query) -> list[Ride]:
    count = rng.choices((0, 1, 2, 3, 4, 5, 6), (4, 10, 15, 25, 16, 14, 16))[0]
    times = sorted(rng.sample(range(5 * 60, 21 * 60), count))
    if rng.random() < 0.5:
        times = sorted({t - t % 5 for t in times})
    if q.task in ("arrival", "check") and times and rng.random() < 0.5:
        times = sorted({q.time, *times[1:]})
    minutes = rng.randrange(20, 200)
    return [Ride(t, t + minutes) for t in times]


def departures_result(rng: random.Random, q: Query) -> tuple[list[Ride], str]:
    """The rides of a result, and the result's text."""
    if rng.random() < OWN_TIMETABLE_SHARE:
        rides = [Ride(j.departure, j.arrival) for j in tt.journeys(q.origin, q.destination, q.day)]
    else:
        rides = _random_rides(rng, q)
    if q.task in NEED_ARRIVALS or rng.random() < 0.4:
        content = [{"departure": tt.clock(r.departure), "arrival": tt.clock(r.arrival)}
                   for r in rides]
    else:
        content = [tt.clock(r.departure) for r in rides]
        rides = [Ride(r.departure, None) for r in rides]
    if rng.random() < 0.8:
        content = {"departures": content}
        if rng.random() < 0.3:
            content = {"from": q.origin, "to": q.destination, "day": q.day} | content
    return rides, json.dumps(content, separators=rng.choice(((", ", ": "), (",", ":"))))


def fare_result(rng: random.Random, q: Query) -> tuple[tuple[int, int], str]:
    """The fares of an adult and a child, and the result's text."""
    fares = (tt.adult_fare(q.origin, q.destination), tt.half_fare(q.origin, q.destination))
    if rng.random() >= OWN_TIMETABLE_SHARE:
        fares = (rng.randrange(4, 60), rng.randrange(2, 30))
    content = {"adult": fares[0], "child": fares[1]}
    if rng.random() < 0.3:
        content |= {"currency": "USD"}
    return fares, json.dumps(content, separators=rng.choice(((", ", ": "), (",", ":"))))


def _ride(q: Query, which: str, ride: Ride) -> str:
    arrives = "" if ride.arrival is None else f" and arrives at {tt.clock(ride.arrival)}"
    return (f"{which} coach from {q.origin} to {q.destination} leaves at "
            f"{tt.clock(ride.departure)}{arrives}.")


def _next(q: Query, rides: list[Ride]) -> str:
    after = f"After {tt.clock(q.time)} {ON_DAY[q.day]}"
    ride = next((r for r in rides if r.departure > q.time), None)
    if ride:
        return f"{after} {_ride(q, 'the next', ride)}"
    return (f"{after} there is no more coach from {q.origin} to {q.destination}; the last one "
            f"leaves at {tt.clock(rides[-1].departure)}.")


def _by(q: Query, rides: list[Ride]) -> str:
    said = (f"{capital(ON_DAY[q.day])} the coaches from {q.origin} reach {q.destination} at "
            f"{join([tt.clock(r.arrival) for r in rides])}.")
    fitting = [r for r in rides if r.arrival <= q.time]
    if not fitting:
        return f"{said} None arrives by {tt.clock(q.time)}."
    return f"{said} To be there by {tt.clock(q.time)}, leave {q.origin} at " \
           f"{tt.clock(fitting[-1].departure)}."


def _check(q: Query, rides: list[Ride]) -> str:
    said = (f"{capital(ON_DAY[q.day])} coaches leave {q.origin} for {q.destination} at "
            f"{join([tt.clock(r.departure) for r in rides])}")
    ride = next((r for r in rides if r.departure == q.time), None)
    if not ride:
        return f"{said}, so there is none at {tt.clock(q.time)}."
    if q.task == "arrival":
        return (f"{capital(ON_DAY[q.day])} the {tt.clock(q.time)} from {q.origin} arrives in "
                f"{q.destination} at {tt.clock(ride.arrival)}.")
    arrives = "" if ride.arrival is None else f"; it arrives at {tt.clock(ride.arrival)}"
    return f"{said}, so yes, there is one at {tt.clock(q.time)}{arrives}."


def answer_from_departures(q: Query, rides: list[Ride]) -> str:
    day = capital(ON_DAY[q.day])
    if not rides:
        return f"{day} there is no coach from {q.origin} to {q.destination}."
    if q.task in ("first", "last"):
        return f"{day} {_ride(q, 'the ' + q.task, rides[0 if q.task == 'first' else -1])}"
    if q.task == "next":
        return _next(q, rides)
    if q.task == "by":
        return _by(q, rides)
    if q.task in ("arrival", "check"):
        return _check(q, rides)
    times = join([tt.clock(r.departure) for r in rides])
    if q.task == "count":
        coaches = "is 1 coach" if len(rides) == 1 else f"are {len(rides)} coaches"
        return f"{day} there {coaches} from {q.origin} to {q.destination}, at {times}."
    return f"{day} coaches leave {q.origin} for {q.destination} at {times}."


def answer_from_fares(q: Query, fares: tuple[int, int]) -> str:
    return (f"A single ticket from {q.origin} to {q.destination} costs ${fares[0]} for an adult "
            f"and ${fares[1]} for a child or a senior.")
