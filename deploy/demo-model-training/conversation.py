"""Draws conversations between a visitor and the timetable desk, for training or held out from it.

The key of a turn is its wording (before names and times are filled in) and its facts. A fixed share
of all keys is held out: training never draws such a turn, and evaluation asks only such turns. For
tasks that need a computation (fare sums, next coach after a time, arriving by a time) the key is
only the facts, so evaluation asks for combinations that training has not seen in any wording.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, replace

import small_talk as st
import timetable as tt
from answers import DAY_TASKS, JSON_TASKS, PAIR_TASKS, Query, answer
from follow_ups import follow_up
from phrases import QUESTIONS
from systems import Context, system_message
from texts import FAQ
from wording import (
    LETTERS,
    WEEK,
    day_phrase,
    day_type,
    expand,
    fill,
    group_phrase,
    politely,
    random_group,
    random_time,
    roughen,
    time_phrase,
)

HELD_OUT_ONE_IN = 20
WORKED_OUT = frozenset({"group", "group_return", "next", "by", "check"})
_WEIGHTS = {
    "departures": 12, "first": 4, "last": 4, "next": 14, "by": 7, "arrival": 7, "check": 5,
    "count": 2, "duration": 5, "route": 6, "fare": 6, "return": 3, "group": 10, "group_return": 3,
    "board": 2.5, "line_times": 2.5, "line_times_towards": 1.5, "stops_of": 1, "lines_at": 1,
    "change_between": 0.7, "town": 1.5, "line_story": 0.8, "same": 0.6, "missing_origin": 2,
    "missing_destination": 1.2, "missing_both": 1.2, "no_clock": 0.8, "faq": 6, "ood": 6.5,
    "unknown_stop": 3.5, "unclear": 0.7, "greet": 1.5, "how": 0.5, "thanks": 1.2, "bye": 1.0,
    "ok": 1.0, "who": 1.6, "can": 1.2, "joke": 0.5, "lines": 0.6, "stops": 0.6, "days": 0.7,
    "story": 1.2,
}
TASKS = tuple(_WEIGHTS)
_TASK_WEIGHTS = tuple(_WEIGHTS.values())
_JSON_FORMS = ("{as JSON|in JSON|as json|in json format|as a JSON object|JSON please|json|(JSON)|"
               "in JSON please|as compact JSON|- as JSON|formatted as JSON|, answer in JSON|, reply "
               "as JSON|. Answer as JSON.|. Give me JSON.|. JSON only.}")
_JSON_BEFORE = "{as JSON:|in JSON:|JSON:|json,|Answer in JSON:|Reply with JSON:|please use JSON:}"


@dataclass(frozen=True)
class Turn:
    query: Query
    user: str
    reply: str
    task: str  # name under which evaluation counts the turn


def is_held_out(task: str, form: str, facts: tuple) -> bool:
    key = (task, facts) if task in WORKED_OUT else (task, form, facts)
    return zlib.crc32(repr(key).encode()) % HELD_OUT_ONE_IN == 0


def _facts(q: Query) -> tuple:
    return (q.origin, q.destination, q.day, q.time, q.group, q.line, q.topic)


def _pick_day(rng: random.Random, task: str, context: Context) -> tuple[str, str]:
    """The day of the question and the phrase for it, which may be empty."""
    if task not in DAY_TASKS and task not in ("board", "line_times", "line_times_towards"):
        return "weekday", ""
    if context.day and rng.random() < 0.7:
        if rng.random() < 0.3:
            tomorrow = WEEK[(WEEK.index(context.day) + 1) % 7]
            return day_type(tomorrow), rng.choice((" tomorrow", " tomorrow morning"))
        return day_type(context.day), rng.choice(("", "", " today", " today"))
    if task == "departures" and rng.random() < 0.06:
        return "weekend", day_phrase(rng, "weekend")
    day = rng.choice(tt.DAYS)
    phrase = day_phrase(rng, day)
    while context.day and phrase in ("", " today", " tomorrow"):
        phrase = day_phrase(rng, day)
    return day, phrase


def _with_time(rng: random.Random, q: Query, context: Context) -> Query:
    """Adds the time that a task needs. Usually a departure at that time exists."""
    if q.task in ("arrival", "check") and rng.random() < (0.93 if q.task == "arrival" else 0.5):
        return replace(q, time=rng.choice(tt.journeys(q.origin, q.destination, q.day)).departure)
    if q.task == "check":
        return replace(q, time=5 * rng.randrange(12 * 6, 12 * 20))
    return replace(q, time=random_time(rng))


def _question(rng: random.Random, task: str, q: Query, day: str,
              slots: dict[str, str]) -> tuple[str, str]:
    """The form of the wording and the filled text; a day that is mentioned becomes part of the
    wording."""
    form = expand(rng, rng.choice(QUESTIONS[task]))
    while day and "<day>" not in form:
        form = expand(rng, rng.choice(QUESTIONS[task]))
    slots |= {"from": q.origin, "to": q.destination, "day": day, "line": q.line, "line2": q.topic}
    return form, fill(form, slots)


def _fresh(rng: random.Random, task: str, context: Context) -> tuple[str, str, Query]:
    """A question that needs no earlier turn: (form, text, query)."""
    line = rng.choice(tt.LINES)
    if task in PAIR_TASKS:
        day, phrase = _pick_day(rng, task, context)
        origin, destination = rng.sample(tt.STOPS, 2)
        q = Query(task, origin, destination, day)
        slots = {}
        if task in ("next", "by", "arrival", "check"):
            q = _with_time(rng, q, context)
            slots["time"] = time_phrase(rng, q.time)
        if task in ("group", "group_return"):
            q = replace(q, group=random_group(rng))
            slots["group"] = group_phrase(rng, q.group)
        return *_question(rng, task, q, phrase, slots), q
    if task in ("board", "town", "lines_at", "same", "missing_destination"):
        day, phrase = _pick_day(rng, task, context) if task == "board" else ("weekday", "")
        if task in ("same", "missing_destination") and rng.random() < 0.3:
            day, phrase = _pick_day(rng, "departures", context)
        q = Query(task, origin=rng.choice(tt.STOPS), day=day)
        return *_question(rng, task, q, phrase, {}), q
    if task == "missing_origin":
        day, phrase = _pick_day(rng, "departures", context)
        q = Query(task, destination=rng.choice(tt.STOPS), day=day)
        return *_question(rng, task, q, phrase, {}), q
    if task in ("line_times", "line_times_towards"):
        day, phrase = _pick_day(rng, task, context)
        end = rng.choice((line.stops[0], line.stops[-1])) if task.endswith("towards") else ""
        q = Query("line_times", destination=end, day=day, line=line.name)
        return *_question(rng, task, q, phrase, {}), q
    if task in ("stops_of", "line_story", "change_between"):
        other = rng.choice([x for x in tt.LINES if x != line])
        q = Query(task, line=line.name, topic=other.name if task == "change_between" else "")
        return *_question(rng, task, q, "", {}), q
    if task in ("missing_both", "no_clock"):
        day, phrase = _pick_day(rng, "departures", context)
        if task == "no_clock" or day == "weekend":
            day, phrase = "weekday", ""
        q = Query(task, day=day)
        return *_question(rng, task, q, phrase, {}), q
    if task == "faq":
        topic = rng.choice(tuple(FAQ))
        form = expand(rng, rng.choice(st.FAQ_QUESTIONS[topic]))
        return form, form, Query(task, topic=topic)
    if task == "unclear":
        form = " ".join(rng.sample(st.UNCLEAR_WORDS, rng.choice((1, 1, 2, 3))))
        if rng.random() < 0.5:
            form = "".join(rng.choice(LETTERS) for _ in range(rng.randrange(3, 12)))
        return form, form, Query(task)
    if task == "ood":
        return _fill_unknown(rng, task, expand(rng, rng.choice(st.OOD)), rng.choice(st.OOD_TOPICS))
    if task == "unknown_stop":
        form = expand(rng, rng.choice(st.ELSEWHERE_QUESTIONS))
        return _fill_unknown(rng, task, form, _elsewhere(rng))
    form = expand(rng, rng.choice(st.SMALL_TALK[task]))
    return form, form, Query(task)


def _elsewhere(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return rng.choice(st.ELSEWHERE)
    return "".join(rng.choice(st.SYLLABLES) for _ in range(rng.choice((2, 2, 3)))).capitalize()


def _fill_unknown(rng: random.Random, task: str, form: str, x: str) -> tuple[str, str, Query]:
    person = rng.choice(st.OOD_PEOPLE)
    known = rng.choice(tt.STOPS)
    text = fill(form, {"x": x, "p": person, "n": str(rng.randrange(2, 100)), "known": known,
                       "day": day_phrase(rng, rng.choice(tt.DAYS))})
    return form, text, Query(task, topic=f"{x}/{person}/{known}")


def _want_json(rng: random.Random, form: str, text: str) -> tuple[str, str]:
    if rng.random() < 0.2:
        before = expand(rng, _JSON_BEFORE)
        return f"{before} {form}", f"{before} {text}"
    after = expand(rng, _JSON_FORMS)
    body = text.rstrip("?.") if after[0] in ".," or rng.random() < 0.5 else text
    return f"{form} {after}", f"{body}{'' if after[0] in '.,' else ' '}{after}"


def _draw(rng: random.Random, previous: Query | None,
          context: Context) -> tuple[str, str, Query, str]:
    """(form, text, query, task name) of one more turn."""
    if previous and rng.random() < 0.75:
        drawn = follow_up(rng, previous)
        if drawn:
            form, text, q = drawn
            name = "follow_up_json" if q.as_json and not previous.as_json else "follow_up"
            return form, text, replace(q, as_json=q.as_json or context.json), name
    task = rng.choices(TASKS, _TASK_WEIGHTS)[0]
    if context.day and task == "no_clock":
        task = "next"
    form, text, q = _fresh(rng, task, context)
    if task == "next" and context.minutes >= 0 and rng.random() < 0.7:
        q = replace(q, time=context.minutes, day=day_type(context.day))
        form = expand(rng, "{when|what time} {is|does|leaves} the next {coach|stagecoach|one} "
                      "{from <from> to <to>|to <to> from <from>|<from> to <to>}?")
        text = fill(form, {"from": q.origin, "to": q.destination})
    if task in JSON_TASKS and q.day != "weekend" and not context.json and rng.random() < 0.16:
        form, text = _want_json(rng, form, text)
        q, task = replace(q, as_json=True), "json"
    as_json = q.as_json or (context.json and q.task in JSON_TASKS)
    return form, text, replace(q, as_json=as_json), task


def draw_turn(rng: random.Random, held_out: bool | None, previous: Query | None,
              context: Context) -> Turn:
    """Draws a turn that is held out (True), is not (False), or may be either (None)."""
    while True:
        form, text, q, task = _draw(rng, previous, context)
        if held_out is None or is_held_out(q.task, form, _facts(q)) == held_out:
            if context.json and q.as_json:
                task = "json"
            if q.task in PAIR_TASKS and task != "follow_up":
                text = politely(rng, text)
            return Turn(q, roughen(rng, text), answer(q), task)


def draw_conversation(rng: random.Random, held_out: bool = False) -> tuple[list[dict], str]:
    """Messages that end with the desk's reply, and the task of the last turn.

    With `held_out` the last turn is held out and any turns before it are ordinary ones.
    """
    context, system = system_message(rng)
    turns = rng.choices((1, 2, 3, 4, 5, 6, 8), (50, 20, 12, 8, 5, 3, 2))[0]
    messages = [{"role": "system", "content": system}] if system else []
    previous = None
    for i in range(turns):
        is_last = i == turns - 1
        turn = draw_turn(rng, held_out if is_last or not held_out else False, previous, context)
        messages.append({"role": "user", "content": turn.user})
        messages.append({"role": "assistant", "content": turn.reply})
        previous = turn.query if turn.query.origin or turn.query.destination or turn.query.line \
            or previous is None else previous
    return messages, turn.task
