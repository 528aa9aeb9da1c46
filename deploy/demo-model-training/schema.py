"""Draws questions whose answer a JSON schema of the visitor's program puts into a form.

A server shows the model no schema: a grammar allows only its fields, one after the other. So the
fields are drawn at random, and the model learns to give each field its value from the question and
the timetable.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace

import timetable as tt
from answers import PAIR_TASKS, Query, as_object
from conversation import draw_turn
from systems import Context

_ALIASES = {"from": ("from", "from", "origin"), "to": ("to", "to", "destination")}


@dataclass(frozen=True)
class SchemaQuestion:
    user: str
    fields: dict[str, object]  # in the order of the schema
    asks_json: bool

    def answer(self) -> str:
        return json.dumps(self.fields, separators=(",", ":"))

    def value_spans(self) -> list[tuple[int, int]]:
        """Where answer() has what the grammar leaves open: each value up to the end of the
        punctuation that closes it, without the quote or bracket that opens it."""
        spans, at = [], 1
        for key, value in self.fields.items():
            begin = at + len(json.dumps(key)) + 1
            at = begin + len(json.dumps(value, separators=(",", ":"))) + 1
            opening = 2 if isinstance(value, list) else int(isinstance(value, str))
            spans.append((begin + opening, at))
        return spans


def _values(q: Query) -> dict[str, object]:
    """What the answer knows, including what the question did not ask for."""
    first = as_object(replace(q, task="first"))
    values = {"from": q.origin, "to": q.destination, "day": q.day,
              "departure": first["departure"], "arrival": first["arrival"],
              "total": tt.adult_fare(q.origin, q.destination)}
    own = {"stop", "lines", "change", "currency", "after", "by", "asked"}
    values |= {key: value for key, value in as_object(q).items()
               if key not in own and value is not None}
    if q.task == "return":
        values["total"] = values["adult"]
    if q.task == "count":
        values["count"] = len(values["departures"])
    return values


def draw_schema_question(rng: random.Random, held_out: bool = False) -> SchemaQuestion:
    turn = draw_turn(rng, held_out, None, Context())
    while turn.query.task not in PAIR_TASKS or turn.query.day == "weekend":
        turn = draw_turn(rng, held_out, None, Context())
    q = turn.query
    values = _values(q)
    asked = [key for key in as_object(q) if key in values]
    others = [key for key in values if key not in asked]
    keys = rng.sample(asked, rng.randrange(2, len(asked) + 1))
    keys += [key for key in others if rng.random() < 0.15]
    if rng.random() < 0.5:
        keys.sort(key=list(values).index)  # as most people would write a schema
    else:
        rng.shuffle(keys)
    fields = {rng.choice(_ALIASES.get(key, (key,))): values[key] for key in keys}
    return SchemaQuestion(turn.user, fields, q.as_json)
