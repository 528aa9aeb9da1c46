"""The timetable desk's answers: one fixed wording for each query, as a sentence or as JSON.

One wording per fact keeps greedy decoding unambiguous, so a held-out question has one right answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import timetable as tt
from texts import FAQ, FIXED, LINE_STORIES, TOWNS

ON_DAY = {"weekday": "on weekdays", "saturday": "on Saturdays", "sunday": "on Sundays"}
GROUP_NOUNS = (("adult", "adults"), ("child", "children"), ("senior", "seniors"))
JSON_TASKS = frozenset({
    "departures", "first", "last", "next", "by", "arrival", "check", "duration", "fare",
    "return", "group", "group_return", "route", "count", "stops_of", "lines_at"})

PAIR_TASKS = ("departures", "first", "last", "next", "by", "arrival", "check", "count", "duration",
              "route", "fare", "return", "group", "group_return")
DAY_TASKS = frozenset({"departures", "first", "last", "next", "by", "arrival", "check", "count"})


@dataclass(frozen=True)
class Query:
    """The meaning of a question; `task` determines which of the other fields are used."""

    task: str
    origin: str = ""
    destination: str = ""
    day: str = "weekday"
    time: int = -1  # minutes after midnight
    group: tuple[int, int, int] = (0, 0, 0)  # adults, children, seniors
    line: str = ""
    topic: str = ""
    as_json: bool = False


def join(items: list[str] | tuple[str, ...]) -> str:
    items = list(items)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def hours(minutes: int) -> str:
    h, m = divmod(minutes, 60)
    parts = [f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((h, "hour"), (m, "minute")) if n]
    return " and ".join(parts)


def count_of(n: int, nouns: tuple[str, str]) -> str:
    return f"{n} {nouns[0] if n == 1 else nouns[1]}"


def line_named(name: str) -> tt.Line:
    return next(line for line in tt.LINES if line.name == name)


def _ride(j: tt.Journey) -> str:
    first, last = j.legs[0], j.legs[-1]
    if j.change is None:
        return f"leaves at {tt.clock(j.departure)} and arrives at {tt.clock(j.arrival)}"
    return (f"leaves at {tt.clock(j.departure)}, reaches {j.change} at {tt.clock(first.arrival)}, "
            f"connects with the {last.line.name} at {tt.clock(last.departure)} and arrives at "
            f"{tt.clock(j.arrival)}")


def _times(q: Query) -> str:
    return join([tt.clock(j.departure) for j in tt.journeys(q.origin, q.destination, q.day)])


def _trip_sentence(q: Query, which: str, j: tt.Journey) -> str:
    return (f"{capital(ON_DAY[q.day])} the {which} coach from {q.origin} to {q.destination} "
            f"{_ride(j)}.")


def departures(q: Query) -> str:
    if q.day == "weekend":
        return " ".join(departures(replace(q, day=day)) for day in ("saturday", "sunday"))
    rides = tt.path(q.origin, q.destination)
    if len(rides) == 1:
        return (f"{capital(ON_DAY[q.day])} the {rides[0][0].name} leaves {q.origin} for "
                f"{q.destination} at {_times(q)}.")
    return (f"{capital(ON_DAY[q.day])} leave {q.origin} for {q.destination} at {_times(q)}; "
            f"change at {rides[0][2]} from the {rides[0][0].name} to the {rides[1][0].name}.")


def first(q: Query) -> str:
    return _trip_sentence(q, "first", tt.journeys(q.origin, q.destination, q.day)[0])


def last(q: Query) -> str:
    return _trip_sentence(q, "last", tt.journeys(q.origin, q.destination, q.day)[-1])


def next_after(q: Query) -> str:
    j = tt.next_journey(q.origin, q.destination, q.day, q.time)
    if j:
        return f"After {tt.clock(q.time)} {ON_DAY[q.day]} the next coach from {q.origin} to " \
               f"{q.destination} {_ride(j)}."
    final = tt.journeys(q.origin, q.destination, q.day)[-1]
    return (f"After {tt.clock(q.time)} {ON_DAY[q.day]} there is no more coach from {q.origin} to "
            f"{q.destination}; the last one leaves at {tt.clock(final.departure)}.")


def arrive_by(q: Query) -> str:
    arrivals = join([tt.clock(j.arrival) for j in tt.journeys(q.origin, q.destination, q.day)])
    said = (f"{capital(ON_DAY[q.day])} the coaches from {q.origin} reach {q.destination} at "
            f"{arrivals}.")
    j = tt.journey_by(q.origin, q.destination, q.day, q.time)
    if not j:
        return f"{said} None arrives by {tt.clock(q.time)}."
    via = f" and change at {j.change}" if j.change else ""
    return f"{said} To be there by {tt.clock(q.time)}, leave {q.origin} at " \
           f"{tt.clock(j.departure)}{via}."


def arrival(q: Query) -> str:
    j = tt.journey_at(q.origin, q.destination, q.day, q.time)
    if not j:
        return check(q)
    via = f", with a change at {j.change}" if j.change else ""
    return (f"{capital(ON_DAY[q.day])} the {tt.clock(q.time)} from {q.origin} arrives in "
            f"{q.destination} at {tt.clock(j.arrival)}{via}.")


def check(q: Query) -> str:
    j = tt.journey_at(q.origin, q.destination, q.day, q.time)
    said = f"{capital(ON_DAY[q.day])} coaches leave {q.origin} for {q.destination} at {_times(q)}"
    if not j:
        return f"{said}, so there is none at {tt.clock(q.time)}."
    via = f", with a change at {j.change}" if j.change else ""
    return f"{said}, so yes, there is one at {tt.clock(q.time)}; it arrives at " \
           f"{tt.clock(j.arrival)}{via}."


def count(q: Query) -> str:
    n = len(tt.journeys(q.origin, q.destination, q.day))
    return f"{capital(ON_DAY[q.day])} there are {n} coaches from {q.origin} to {q.destination}, " \
           f"at {_times(q)}."


def duration(q: Query) -> str:
    took = hours(tt.shortest_minutes(q.origin, q.destination))
    rides = tt.path(q.origin, q.destination)
    if len(rides) == 1:
        return f"The journey from {q.origin} to {q.destination} takes {took} on the " \
               f"{rides[0][0].name}."
    return f"The journey from {q.origin} to {q.destination} takes {took} at best, with a change " \
           f"at {rides[0][2]}."


def route(q: Query) -> str:
    rides = tt.path(q.origin, q.destination)
    if len(rides) == 1:
        return f"Take the {rides[0][0].name} from {q.origin} to {q.destination}; it is direct."
    return (f"Take the {rides[0][0].name} from {q.origin} to {rides[0][2]}, change there to the "
            f"{rides[1][0].name} and ride on to {q.destination}.")


def fare(q: Query) -> str:
    ret = q.task == "return"
    return (f"A {'return ' if ret else 'single '}ticket from {q.origin} to {q.destination} costs "
            f"${tt.adult_fare(q.origin, q.destination, ret)} for an adult and "
            f"${tt.half_fare(q.origin, q.destination, ret)} for a child or a senior.")


def group_total(q: Query) -> int:
    ret = q.task == "group_return"
    adults, children, seniors = q.group
    return (adults * tt.adult_fare(q.origin, q.destination, ret)
            + (children + seniors) * tt.half_fare(q.origin, q.destination, ret))


def group(q: Query) -> str:
    ret = q.task == "group_return"
    prices = (tt.adult_fare(q.origin, q.destination, ret),
              tt.half_fare(q.origin, q.destination, ret),
              tt.half_fare(q.origin, q.destination, ret))
    parts = [f"{count_of(n, nouns)} at ${price} {'makes' if n == 1 else 'make'} ${n * price}"
             for n, nouns, price in zip(q.group, GROUP_NOUNS, prices) if n]
    return (f"From {q.origin} to {q.destination}{' and back' if ret else ''}, {join(parts)}. "
            f"The total is ${group_total(q)}.")


def board(q: Query) -> str:
    """The departure board of a stop: one row for each line and direction."""
    rows = [f"Departures from {q.origin} {ON_DAY[q.day]}:"]
    for line in tt.lines_at(q.origin):
        for outward in (True, False):
            runs = tt.trips(line, q.day, outward)
            at = runs[0].stops.index(q.origin)
            if at < len(line.stops) - 1:
                times = ", ".join(tt.clock(run.departures[at]) for run in runs)
                rows.append(f"- {line.name} to {runs[0].stops[-1]}: {times}")
    return "\n".join(rows)


def line_times(q: Query) -> str:
    """The whole timetable of a line on a day; `destination` limits it to one direction."""
    line = line_named(q.line)
    rows = [f"{line.name} {ON_DAY[q.day]}:"]
    for outward in (True, False):
        runs = tt.trips(line, q.day, outward)
        if q.destination not in ("", runs[0].stops[-1]):
            continue
        rows.append(f"{runs[0].stops[0]} to {runs[0].stops[-1]}")
        for run in runs:
            times = run.departures[:-1] + run.arrivals[-1:]
            rows.append("- " + ", ".join(f"{s} {tt.clock(t)}" for s, t in zip(run.stops, times)))
    return "\n".join(rows)


def stops_of(q: Query) -> str:
    return f"The {q.line} stops at {join(line_named(q.line).stops)}."


def lines_at(q: Query) -> str:
    names = [f"the {line.name}" for line in tt.lines_at(q.origin)]
    return f"{q.origin} is served by {join(names)}."


def change_between(q: Query) -> str:
    other = line_named(q.topic)
    return f"You can change between the {q.line} and the {q.topic} at " \
           f"{tt.interchange(line_named(q.line), other)}."


SENTENCES = {
    "departures": departures, "first": first, "last": last, "next": next_after, "by": arrive_by,
    "arrival": arrival, "check": check, "count": count, "duration": duration, "route": route,
    "fare": fare, "return": fare, "group": group, "group_return": group, "board": board,
    "line_times": line_times, "stops_of": stops_of, "lines_at": lines_at,
    "change_between": change_between,
    "town": lambda q: TOWNS[q.origin],
    "line_story": lambda q: LINE_STORIES[q.line],
    "faq": lambda q: FAQ[q.topic],
    "same": lambda q: f"You are already in {q.origin}, so no coach is needed.",
}


def _journey_json(j: tt.Journey | None) -> dict:
    if j is None:
        return {"departure": None, "arrival": None}
    out = {"departure": tt.clock(j.departure), "arrival": tt.clock(j.arrival)}
    return out | ({"change": j.change} if j.change else {})


def as_object(q: Query) -> dict:
    """The answer as the object that is printed when a visitor asks for JSON."""
    if q.task == "stops_of":
        return {"line": q.line, "stops": list(line_named(q.line).stops)}
    if q.task == "lines_at":
        return {"stop": q.origin, "lines": [line.name for line in tt.lines_at(q.origin)]}
    pair = {"from": q.origin, "to": q.destination}
    if q.task == "duration":
        return pair | {"minutes": tt.shortest_minutes(q.origin, q.destination)}
    if q.task == "route":
        rides = tt.path(q.origin, q.destination)
        lines = {"lines": [ride[0].name for ride in rides]}
        return pair | lines | ({"change": rides[0][2]} if len(rides) == 2 else {})
    if q.task in ("fare", "return"):
        ret = q.task == "return"
        return pair | {"return": ret, "adult": tt.adult_fare(q.origin, q.destination, ret),
                       "child": tt.half_fare(q.origin, q.destination, ret), "currency": "USD"}
    if q.task in ("group", "group_return"):
        people = {nouns[1]: n for n, nouns in zip(q.group, GROUP_NOUNS) if n}
        return pair | {"return": q.task == "group_return"} | people | {
            "total": group_total(q), "currency": "USD"}
    pair["day"] = q.day
    all_day = tt.journeys(q.origin, q.destination, q.day)
    if q.task in ("departures", "count"):
        return pair | {"departures": [tt.clock(j.departure) for j in all_day]}
    if q.task == "next":
        return pair | {"after": tt.clock(q.time)} | _journey_json(
            tt.next_journey(q.origin, q.destination, q.day, q.time))
    if q.task == "by":
        return pair | {"by": tt.clock(q.time)} | _journey_json(
            tt.journey_by(q.origin, q.destination, q.day, q.time))
    if q.task == "check":
        times = [tt.clock(j.departure) for j in all_day]
        return pair | {"departures": times, "asked": tt.clock(q.time),
                       "runs": tt.clock(q.time) in times}
    if q.task == "arrival":
        return pair | {"asked": tt.clock(q.time)} | _journey_json(
            tt.journey_at(q.origin, q.destination, q.day, q.time))
    return pair | _journey_json(all_day[0] if q.task == "first" else all_day[-1])


def answer(q: Query) -> str:
    if q.as_json and q.task in JSON_TASKS and q.day != "weekend":
        return json.dumps(as_object(q), separators=(",", ":"))
    if q.task in SENTENCES:
        return SENTENCES[q.task](q)
    return FIXED[q.task]
