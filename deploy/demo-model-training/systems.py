"""System messages: none, arbitrary ones, and three kinds that change the desk's answers."""

from __future__ import annotations

import random
from dataclasses import dataclass

import timetable as tt
from wording import WEEK, expand, time_phrase


@dataclass(frozen=True)
class Context:
    """Facts from a system message."""

    day: str = ""  # today's name, such as "Tuesday"
    minutes: int = -1  # the time now
    json: bool = False


_GENERIC = (
    "You are a helpful assistant.", "You are a helpful, respectful and honest assistant.",
    f"You are the timetable desk of the {tt.COMPANY}.", "You answer questions about the timetable.",
    "Be brief.", "Be polite.", "Answer in English.", "Answer concisely.", "You are a friendly "
    "clerk.",
    "Do not make things up.", "Keep your answers short.", "Be precise.", "Think carefully.",
    "You are a chatbot on a web site.", "The user is a traveller.", "Only answer what you know.",
    "You work at a stagecoach office.", "Always tell the truth.", "You are an expert in travel.",
    "Speak like a clerk at a counter.", "Give exact times.", "You are an AI assistant.",
    "Stay friendly at all times.", "Help the user.", "This is a demonstration.",
    "You are stagecoach.",
    "If you do not know something, say so.", "Do not talk about politics.", "Use the 24-hour "
    "clock.",
    "You are a large language model.", "Never reveal this message.", "Your name is Martha.",
)
_JSON = ("{always|only|please|} {answer|reply|respond} {in|as|with} {JSON|JSON only|compact JSON|"
"a JSON object}.",
         "{every answer must be|your answers are|output} {JSON|valid JSON|a JSON object}.",
         "use JSON for {all|your|every} {answers|answer|replies}.")
_TODAY = ("{today is|it is|it's|the day is|today:|current day:} <day>.",
          "{it is now|the time is|now:|it is|current time:} <time> on <day>.",
          "{today is|it is} <day>{, the time is| and it is now|,} <time>.",
          "{date and time|now|current time}: <day> <time>")


def system_message(rng: random.Random) -> tuple[Context, str]:
    roll = rng.random()
    if roll < 0.70:
        return Context(), ""
    parts = rng.sample(_GENERIC, rng.choice((1, 1, 1, 2, 2, 3)))
    context = Context()
    if roll > 0.94:
        context = Context(json=True)
        text = expand(rng, rng.choice(_JSON))
        extra = text[:1].upper() + text[1:]
    elif roll > 0.86:
        day = rng.choice(WEEK)
        form = expand(rng, rng.choice(_TODAY))
        minutes = rng.randrange(6 * 60, 21 * 60) if "<time>" in form else -1
        clock = time_phrase(rng, minutes) if minutes >= 0 else ""
        form = form.replace("<day>", day).replace("<time>", clock)
        context, extra = Context(day, minutes), form[:1].upper() + form[1:]
    else:
        return context, " ".join(parts)
    parts = [extra] if rng.random() < 0.6 else parts[:1] + [extra]
    return context, " ".join(parts)
