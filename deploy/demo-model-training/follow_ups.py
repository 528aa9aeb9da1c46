"""Questions that refer to the previous turn: "and on Sunday?", "how much is it?", "as JSON"."""

from __future__ import annotations

import random
from dataclasses import replace

import timetable as tt
from answers import DAY_TASKS, JSON_TASKS, PAIR_TASKS, Query
from wording import day_phrase, expand, fill, group_phrase, random_group, random_time, time_phrase

_AND = "{and|and|what about|how about|and what about|ok and|}"
_FOLLOW = {
    "day": [_AND + " <day>?", "is it the same <day>?", "{the same|same} <day>{?| please}",
    "what if I go <day>?",
            "no, I {meant|mean} <day>", "sorry, <day>", "I meant <day>"],
    "destination": [_AND + " to <to>?", _AND + " {to <to> instead|if I go to <to>}?",
    "what if I go to <to>?",
                    "{the same|same} to <to>{?| please}", "sorry, I {meant|mean} to <to>",
                    "{and|then} to <to>"],
    "origin": [_AND + " from <from>?", "what if I {start|leave|go} from <from>?",
    "{the same|same} from <from>"
               "{?| please}", "sorry, I {meant|mean} from <from>", "no, from <from>"],
    "both": [_AND + " from <from> to <to>?", _AND + " <from> to <to>?", "{the same|same} from "
    "<from> to <to>{?| please}"],
    "reverse": [_AND + " {the way back|back|the other way|the other direction|in the other "
    "direction|the other way "
                "round|the return journey}?", "and how about {the way back|going back}?",
                "the same in the other direction"],
    "time": [_AND + " after <time>?", "and {later, |}after <time>?", "I can only {leave|go} after "
    "<time>", "and {if I leave|"
             "leaving|one} after <time>?", "{next|the next} one after <time>{?|}"],
    "later": ["{and|and what is|what is|when is} the {next one|one after that|next one after that|"
    "following one|coach after that}?",
              "{is there a later one|a later one|anything later|later|something later}{?| please}",
              "{and|} after that?",
              "I will miss that one{. What's next|, when is the next one|}?"],
    "departures": ["when {can I|do I|does it|does the coach|do the coaches|do coaches} {leave|go|"
    "depart}?", "{and |}{what are the "
                   "departures|what are the times|what are all the times|all departures|all "
                   "times}{?| please}", "show me {the "
                   "departures|the times|all times|all of them}", "when are the {coaches|"
                   "departures}?", "{what times|which times}?"],
    "first": ["{and |}{when is|what is|what's|} the {first|earliest} {one|coach}?",
    "{and|what about} the {first one|earliest|"
              "first coach}?", "when does the first one {leave|go}?", "how early can I leave?"],
    "last": ["{and |}{when is|what is|what's|} the {last|latest} {one|coach}?", "{and|what about} "
    "the {last one|latest|last "
             "coach}?", "when does the last one {leave|go}?", "how late can I leave?"],
    "arrival": ["{and |}when does the <time> {one |coach |}{arrive|get there|get in}?",
    "{if|and if} I take the <time>{, when am "
                "I there|, when do I arrive|}?", "when will I {be there|arrive} {with|on} the "
                "<time>?", "and the <time>?",
                "I take the <time>. When do I arrive?"],
    "by": ["I {must|need to|have to} be there by <time>", "which {one|coach} gets me there by "
    "<time>?", "what if I must {be there|"
           "arrive} {by|before} <time>?"],
    "count": ["how many {are there|coaches are there|coaches go|are that}{ a day|}?",
    "how often does it {go|run}?"],
    "duration": ["{and |}how long {does it take|does that take|is the journey|is the trip|is the "
    "ride|will it take|am I on the road}?",
                 "{and |what is |}the {travel time|duration|journey time}?", "how far is {it|"
                 "that}?", "how long?", "is it far?"],
    "route": ["{and |}which line {is that|is it|do I take|goes there}?", "{and |}{do I|must I|"
    "where do I} {have to |need to |}change?",
              "is {it|that} direct?", "{and |}how do I get there?", "which line?",
              "is that a direct {coach|one}?"],
    "fare": ["{and |}{how much is it|what does it cost|how much is that|how much is a ticket|what "
    "is the fare|how much do I pay|"
             "what does that cost|how much does it cost|how much is the fare|what's the price|how "
             "much would that be}{ then|}?",
             "{and |}the {price|fare|cost}?", "how much?", "price?", "and for a child?",
             "what do children pay?"],
    "return": ["{and |}{how much is a|what does a|and a|what about a} return{ ticket|}{ cost|}?",
    "and {there and back|with return|as a return "
               "ticket|for a return|the return ticket|return}?", "and a round trip?"],
    "group": [_AND + " for <group>?", "{and |}{how much is it|how much is that|what does it cost|"
    "what do we pay} for <group>?",
              "we are <group>", "{and |}if we are <group>?", "{I need |}tickets for <group>{ "
              "please|}", "<group>{?| please}",
              "and {in total |}for <group>?"],
    "json": ["{as JSON|in JSON|as json|JSON please|json|as JSON please|in json please|the same as "
    "JSON|and as JSON|can I have that as JSON|"
             "give me that as JSON|can you put that in JSON|same in JSON|and in JSON format|as a "
             "JSON object}{?|}"],
    "supply_origin": ["from <from>{ please|}", "<from>{ please|}", "I {start|leave|am} {from|in} "
    "<from>", "I'm in <from>", "starting {from|in} <from>"],
    "supply_destination": ["to <to>{ please|}", "<to>{ please|}", "I want to {go|get|travel} to "
    "<to>", "I'm going to <to>"],
    "supply_both": ["from <from> to <to>{ please|}", "<from> to <to>{ please|}", "<from> - <to>",
    "to <to> from <from>"],
}


def _say(rng: random.Random, kind: str, **slots: str) -> tuple[str, str]:
    form = expand(rng, rng.choice(_FOLLOW[kind]))
    return f"+{kind}: {form}", fill(form, slots)


def _day_words(rng: random.Random, day: str) -> str:
    phrase = ""
    while phrase in ("", " today", " tomorrow"):
        phrase = day_phrase(rng, day)
    return phrase.strip()


def _other_stop(rng: random.Random, *taken: str) -> str:
    return rng.choice([stop for stop in tt.STOPS if stop not in taken])


def _after_missing(rng: random.Random, q: Query) -> tuple[str, str, Query]:
    """The visitor gives the missing fact that the desk asked for; the answer is the list of
    departures."""
    if q.task == "missing_origin":
        new = replace(q, task="departures", origin=_other_stop(rng, q.destination))
        return *_say(rng, "supply_origin", **{"from": new.origin}), new
    if q.task == "missing_destination":
        new = replace(q, task="departures", destination=_other_stop(rng, q.origin))
        return *_say(rng, "supply_destination", to=new.destination), new
    origin, destination = rng.sample(tt.STOPS, 2)
    new = replace(q, task="departures", origin=origin, destination=destination)
    return *_say(rng, "supply_both", to=destination, **{"from": origin}), new


def _other_day(rng: random.Random, q: Query) -> tuple[str, str, Query]:
    day = rng.choice([d for d in tt.DAYS if d != q.day])
    return *_say(rng, "day", day=_day_words(rng, day)), replace(q, day=day)


def _change_pair(rng: random.Random, q: Query) -> tuple[str, str, Query]:
    kind = rng.choice(("destination", "origin", "both", "reverse"))
    origin, destination = q.origin, q.destination
    if kind == "reverse" and q.task in ("fare", "return", "group", "group_return"):
        kind = "destination"  # because "and back?" after a fare would mean a return ticket
    if kind == "reverse":
        origin, destination = destination, origin
    if kind in ("destination", "both"):
        destination = _other_stop(rng, q.origin, q.destination)
    if kind in ("origin", "both"):
        origin = _other_stop(rng, q.origin, destination)
    return *_say(rng, kind, to=destination, **{"from": origin}), replace(
        q, origin=origin, destination=destination)


def _other_task(rng: random.Random, q: Query) -> tuple[str, str, Query] | None:
    task = rng.choice(("departures", "first", "last", "next", "later", "arrival", "by", "count",
                       "duration", "route", "fare", "fare", "return", "group", "group"))
    if task == "later":
        shown = {"next": tt.next_journey(q.origin, q.destination, q.day, q.time),
                 "first": tt.journeys(q.origin, q.destination, q.day)[0]}.get(q.task)
        if not shown:
            return None
        return *_say(rng, "later"), replace(q, task="next", time=shown.departure)
    if task == q.task and task not in ("next", "group"):
        return None
    new = replace(q, task=task)
    slots = {}
    if task == "arrival":
        new = replace(new, time=rng.choice(tt.journeys(q.origin, q.destination, q.day)).departure)
    elif task in ("next", "by"):
        new = replace(new, time=random_time(rng))
    if task in ("arrival", "next", "by"):
        slots["time"] = time_phrase(rng, new.time)
    if task == "group":
        new = replace(new, task="group_return" if q.task in ("return", "group_return") else "group",
                      group=random_group(rng))
        slots["group"] = group_phrase(rng, new.group)
    return *_say(rng, "time" if task == "next" else task, **slots), new


def follow_up(rng: random.Random, q: Query) -> tuple[str, str, Query] | None:
    """A follow-up question as (form, text, query), or None if none makes sense.

    Fields that the new task does not use are kept, so that a later turn can use them again.
"""
    if q.task.startswith("missing_"):
        return _after_missing(rng, q)
    if q.task in ("board", "line_times") and rng.random() < 0.7:
        return _other_day(rng, q)
    if q.task not in PAIR_TASKS or q.day == "weekend":
        return None
    roll = rng.random()
    base = replace(q, as_json=False)
    if roll < 0.08 and q.task in JSON_TASKS and not q.as_json:
        return *_say(rng, "json"), replace(q, as_json=True)
    if roll < 0.38:
        return _other_task(rng, base)
    if q.task in ("arrival", "check"):
        return None  # another day or pair rarely has a departure at that time
    if roll < 0.65 and q.task in DAY_TASKS:
        return _other_day(rng, base)
    return _change_pair(rng, base)
