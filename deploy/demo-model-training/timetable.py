"""The world of the demo model: an invented stagecoach company with a fixed timetable.

Everything here is a pure function of the constants below and of SEED, so the timetable that the
model learns is the same on every machine. Times are minutes after midnight.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

SEED = 1856
COMPANY = "Larkspur Valley Stage Line"
DAYS = ("weekday", "saturday", "sunday")
CONNECTION_MIN = 10  # shortest change between two lines, in minutes
DWELL_MIN = 5  # how long a coach waits at an intermediate stop, in minutes


@dataclass(frozen=True)
class Line:
    name: str
    stops: tuple[str, ...]
    minutes: tuple[int, ...]  # driving time of each segment
    dollars: tuple[int, ...]  # adult fare of each segment; even, so that half fares are whole


LINES = (
    Line("Red Line", ("Alderwick", "Brindle", "Coldwater", "Dunmoor", "Elmstead"),
         (35, 45, 30, 55), (4, 6, 4, 8)),
    Line("Blue Line", ("Foxhollow", "Coldwater", "Greywell", "Hartsfield"),
         (40, 50, 25), (6, 6, 4)),
    Line("Green Line", ("Juniper", "Brindle", "Greywell", "Inkwell"),
         (30, 60, 45), (4, 8, 6)),
)
STOPS = tuple(sorted({stop for line in LINES for stop in line.stops}))
TRIPS_PER_DAY = {"weekday": 6, "saturday": 5, "sunday": 3}


@dataclass(frozen=True)
class Trip:
    """One coach's run along a whole line; arrivals[i] and departures[i] belong to stops[i]."""

    line: Line
    day: str
    stops: tuple[str, ...]
    arrivals: tuple[int, ...]
    departures: tuple[int, ...]


@dataclass(frozen=True)
class Leg:
    line: Line
    origin: str
    destination: str
    departure: int
    arrival: int


@dataclass(frozen=True)
class Journey:
    legs: tuple[Leg, ...]

    @property
    def departure(self) -> int:
        return self.legs[0].departure

    @property
    def arrival(self) -> int:
        return self.legs[-1].arrival

    @property
    def change(self) -> str | None:
        return self.legs[0].destination if len(self.legs) == 2 else None


def clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _run(line: Line, day: str, stops: tuple[str, ...], driving: tuple[int, ...],
         start: int) -> Trip:
    arrivals, departures = [start], [start]
    for minutes in driving:
        arrivals.append(departures[-1] + minutes)
        departures.append(arrivals[-1] + DWELL_MIN)
    return Trip(line, day, stops, tuple(arrivals), tuple(departures))


@functools.cache
def trips(line: Line, day: str, outward: bool) -> tuple[Trip, ...]:
    """All coaches of a line on a day, in order; outward: from the line's first stop to its last."""
    rng = random.Random(f"{SEED}/{line.name}/{day}/{outward}")
    count = TRIPS_PER_DAY[day]
    opening = 6 * 60 if day == "weekday" else 7 * 60
    gap = (17 * 60 + 30 - opening) / (count - 1)
    starts = [opening + round(gap * i / 5) * 5 + rng.choice((0, 5, 10, 15, 20, 25, 30))
              for i in range(count)]
    stops = line.stops if outward else line.stops[::-1]
    driving = line.minutes if outward else line.minutes[::-1]
    return tuple(_run(line, day, stops, driving, start) for start in starts)


def lines_at(stop: str) -> list[Line]:
    return [line for line in LINES if stop in line.stops]


def direct_line(origin: str, destination: str) -> Line | None:
    for line in LINES:
        if origin in line.stops and destination in line.stops:
            return line
    return None


def interchange(first: Line, second: Line) -> str:
    """The common stop of two lines; any two lines of this world have exactly one."""
    (stop,) = set(first.stops) & set(second.stops)
    return stop


def _legs(line: Line, origin: str, destination: str, day: str) -> list[Leg]:
    outward = line.stops.index(origin) < line.stops.index(destination)
    legs = []
    for trip in trips(line, day, outward):
        i, j = trip.stops.index(origin), trip.stops.index(destination)
        legs.append(Leg(line, origin, destination, trip.departures[i], trip.arrivals[j]))
    return legs


def _between(values: tuple[int, ...], line: Line, a: str, b: str) -> int:
    i, j = sorted((line.stops.index(a), line.stops.index(b)))
    return sum(values[i:j])


@functools.cache
def path(origin: str, destination: str) -> tuple[tuple[Line, str, str], ...]:
    """The lines to take: one entry for a direct ride, two for the change with the least driving
    time."""
    line = direct_line(origin, destination)
    if line:
        return ((line, origin, destination),)
    options = []
    for first in lines_at(origin):
        for second in lines_at(destination):
            change = interchange(first, second)
            options.append(((first, origin, change), (second, change, destination)))
    return min(options, key=lambda rides: sum(_between(x.minutes, x, a, b) for x, a, b in rides))


@functools.cache
def journeys(origin: str, destination: str, day: str) -> tuple[Journey, ...]:
    """All sensible journeys of a day in order of departure; none has an avoidable wait."""
    rides = path(origin, destination)
    if len(rides) == 1:
        return tuple(Journey((leg,)) for leg in _legs(*rides[0], day))
    best: dict[int, Journey] = {}
    for first in _legs(*rides[0], day):
        for second in _legs(*rides[1], day):
            if second.departure >= first.arrival + CONNECTION_MIN:
                best[second.departure] = Journey((first, second))  # a later first leg waits less
                break
    return tuple(best[key] for key in sorted(best))


def next_journey(origin: str, destination: str, day: str, after: int) -> Journey | None:
    return next((j for j in journeys(origin, destination, day) if j.departure > after), None)


def journey_by(origin: str, destination: str, day: str, latest: int) -> Journey | None:
    """The last journey that arrives at `latest` or earlier."""
    fitting = [j for j in journeys(origin, destination, day) if j.arrival <= latest]
    return fitting[-1] if fitting else None


def journey_at(origin: str, destination: str, day: str, departure: int) -> Journey | None:
    return next((j for j in journeys(origin, destination, day) if j.departure == departure), None)


def shortest_minutes(origin: str, destination: str) -> int:
    return min(j.arrival - j.departure for day in DAYS for j in journeys(origin, destination, day))


@functools.cache
def adult_fare(origin: str, destination: str, is_return: bool = False) -> int:
    """Dollars for one adult; a return ticket is two singles less two dollars."""
    total = sum(_between(line.dollars, line, a, b) for line, a, b in path(origin, destination))
    return 2 * total - 2 if is_return else total


def half_fare(origin: str, destination: str, is_return: bool = False) -> int:
    """Dollars for one child or one senior."""
    return adult_fare(origin, destination, is_return) // 2
