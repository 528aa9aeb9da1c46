"""Turns grammars and values into a visitor's text: alternatives, days, clock times, typos."""

from __future__ import annotations

import random
import re

_CHOICE = re.compile(r"\{([^{}]*)\}")
_SLOT = re.compile(r"<(\w+)>")
_SPACES = re.compile(r"[ \t]+")
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
            "eleven", "twelve")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
WEEK = WEEKDAYS + ("Saturday", "Sunday")


def expand(rng: random.Random, grammar: str) -> str:
    """Draws one sentence of the grammar; slots are kept."""
    while "{" in grammar:
        grammar = _CHOICE.sub(lambda m: rng.choice(m[1].split("|")), grammar)
    return tidy(grammar)


def fill(form: str, slots: dict[str, str]) -> str:
    return tidy(_SLOT.sub(lambda m: slots[m[1]], form))


def tidy(text: str) -> str:
    text = _SPACES.sub(" ", text).strip()
    return text.replace(" ?", "?").replace(" .", ".").replace(" ,", ",")


def day_type(name: str) -> str:
    return {"Saturday": "saturday", "Sunday": "sunday"}.get(name, "weekday")


def day_phrase(rng: random.Random, day: str) -> str:
    """A phrase with a leading space; may be empty for a weekday."""
    if day == "weekday":
        if rng.random() < 0.5:
            return ""
        name = rng.choice(WEEKDAYS)
        phrases = (f"on {name}", f"on {name}s", f"this {name}", f"next {name}", name,
                   f"on a {name}",
                   f"{name} morning", "on weekdays", "on a weekday", "during the week",
                   "Monday to Friday", "on workdays", name[:3], f"on {name[:3]}", f"on {name}",
                   f"for {name}", f"on {name} please", "today", "tomorrow")
    elif day == "weekend":
        phrases = ("at the weekend", "on the weekend", "this weekend", "on weekends", "weekend",
                   "next weekend", "on Saturday and Sunday", "Saturday and Sunday")
    else:
        name = day.capitalize()
        phrases = (f"on {name}", f"on {name}", f"on {name}s", f"this {name}", f"next {name}", name,
                   f"on a {name}", f"for {name}", name[:3], f"on {name[:3]}", f"{name}s",
                   f"coming {name}", f"on {name} please")
        if day == "sunday":
            phrases += ("on a public holiday", "on a holiday", "on bank holidays",
                        "on Christmas day")
    return " " + rng.choice(phrases)


def time_phrase(rng: random.Random, minutes: int) -> str:
    h, m = divmod(minutes, 60)
    half = h % 12 or 12
    suffix = "am" if h < 12 else "pm"
    ways = [f"{h}:{m:02d}", f"{h:02d}:{m:02d}", f"{h}:{m:02d}", f"{h}.{m:02d}",
            f"{half}:{m:02d} {suffix}", f"{half}:{m:02d}{suffix}", f"{h:02d}{m:02d}",
            f"{h}h{m:02d}"]
    if m == 0:
        ways += [f"{half} {suffix}", f"{half}{suffix}", f"{h} o'clock", f"{h}"] * 2
        if h == 12:
            ways += ["noon", "midday", "twelve"] * 3
        if 13 <= h <= 17:
            ways += [f"{half} o'clock", f"{half} in the afternoon"]
            ways += [f"{half}", f"{_NUMBERS[half]}"] if h <= 17 else []
        if h >= 18:
            ways += [f"{half} in the evening"]
        if 6 <= h <= 11:
            ways += [f"{_NUMBERS[h]}", f"{_NUMBERS[h]} o'clock", f"{h} in the morning"]
    spoken = half if 6 <= h <= 17 else None  # spoken hours without a time of day mean daytime
    if spoken and m == 30:
        ways += [f"half past {_NUMBERS[half]}", f"half past {half}"]
    if spoken and m == 15:
        ways += [f"quarter past {_NUMBERS[half]}", f"a quarter past {half}"]
    if m == 45 and 5 <= h <= 16:
        ways += [f"quarter to {_NUMBERS[(h + 1) % 12 or 12]}", f"a quarter to {(h + 1) % 12 or 12}"]
    return rng.choice(ways)


def _number(rng: random.Random, n: int) -> str:
    return _NUMBERS[n] if rng.random() < 0.4 else str(n)


_PAIRS = {
    (2, 0, 0): ("me and my wife", "my husband and I", "me and a friend", "the two of us",
                "a couple",
                "two", "both of us", "me and my partner", "my wife and me"),
    (1, 1, 0): ("me and my son", "my daughter and I", "me and my child", "a mother and a child",
                "me and one kid", "a father with his child"),
    (1, 2, 0): ("me and my two kids", "a mother with two children", "me and two kids"),
    (2, 1, 0): ("my wife and me and one child", "a couple with a child", "us two and our son",
                "me, my wife and our daughter"),
    (2, 2, 0): ("a family of two adults and two children", "my wife and I and our two kids",
                "a couple with two children", "us and our two kids"),
    (1, 0, 1): ("me and my grandmother", "me and my grandfather", "me and one senior"),
    (3, 0, 0): ("the three of us", "three"), (4, 0, 0): ("the four of us", "four"),
    (5, 0, 0): ("the five of us", "five"),
}


def group_phrase(rng: random.Random, group: tuple[int, int, int]) -> str:
    if group in _PAIRS and rng.random() < 0.4:
        return rng.choice(_PAIRS[group])
    adults, children, seniors = group
    adult_only = not (children or seniors)
    nouns = (
        rng.choice((("adult", "adults"),) * 3 + ((("person", "people"), ("passenger", "passengers"),
                   ("ticket", "tickets"), ("friend", "friends")) if adult_only and adults > 1 else
                   (("grown-up", "grown-ups"), ("adult", "adults")))),
        rng.choice((("child", "children"), ("child", "children"), ("kid", "kids"))),
        rng.choice((("senior", "seniors"), ("senior", "seniors"), ("pensioner", "pensioners"))),
    )
    parts = [f"{_number(rng, n)} {nn[n != 1]}" for n, nn in zip(group, nouns) if n]
    if rng.random() < 0.15:
        rng.shuffle(parts)
    if len(parts) > 1 and rng.random() < 0.8:
        return ", ".join(parts[:-1]) + rng.choice((" and ", " and ", " & ", " plus ")) + parts[-1]
    return ", ".join(parts)


def random_time(rng: random.Random) -> int:
    roll = rng.random()
    if roll < 0.2:
        return 60 * rng.randrange(6, 21)
    if roll < 0.4:
        return 15 * rng.randrange(4 * 6, 4 * 21)
    if roll < 0.75:
        return 5 * rng.randrange(12 * 6, 12 * 21)
    return rng.randrange(5 * 60 + 30, 21 * 60 + 30)


def random_group(rng: random.Random) -> tuple[int, int, int]:
    while True:
        group = (rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6)),
                 rng.choice((0, 0, 1, 1, 2, 2, 3, 4, 5)),
                 rng.choice((0, 0, 0, 1, 2)))
        if sum(group) > 1:
            return group


def politely(rng: random.Random, text: str) -> str:
    """Adds a greeting, a "please" or thoughts before some questions."""
    roll = rng.random()
    if roll < 0.10:
        text = expand(rng, "{Hi|Hello|Hey|Good morning|Excuse me|Please|Sorry|Good day|Hi there|"
                      "Dear "
                      "clerk|OK|So|And|Well|Question:|Hello!|Hi.|Thanks.|One more question:|Quick "
                      "question:|Then}{,|} ") + " " + text
    elif roll < 0.16:
        text += " " + expand(rng, "{please|thanks|, please|, thank you|Thanks!|Thank you.|please?}")
    return tidy(text)


LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _typo(rng: random.Random, text: str) -> str:
    """One typing error inside a word; digits and a word's first letter are not changed."""
    spots = [i for i in range(1, len(text) - 1)
             if text[i].isalpha() and text[i - 1].isalpha() and text[i + 1].isalpha()]
    if not spots:
        return text
    i = rng.choice(spots)
    kind = rng.randrange(4)
    if kind == 0:
        return text[:i] + text[i + 1:]
    if kind == 1:
        return text[:i] + text[i] + text[i:]
    if kind == 2:
        return text[:i] + text[i + 1] + text[i] + text[i + 2:]
    return text[:i] + rng.choice(LETTERS) + text[i + 1:]


def roughen(rng: random.Random, text: str) -> str:
    """Makes the text as careless as people's typing."""
    roll = rng.random()
    if roll < 0.35:
        text = text.lower()
    elif roll < 0.60:
        text = text[:1].upper() + text[1:]
    elif roll < 0.62:
        text = text.upper()
    if rng.random() < 0.25:
        text = text.rstrip("?.!")
    elif rng.random() < 0.04 and text[-1:].isalnum():
        text += rng.choice(("?", ".", "!", "??", " ?"))
    if rng.random() < 0.08:
        text = text.replace("'", "")
    if rng.random() < 0.08:
        text = text.replace(",", "")
    if rng.random() < 0.18:
        for _ in range(rng.choice((1, 1, 2, 3)) if len(text) > 30 else 1):
            text = _typo(rng, text)
    return text if text.strip() else "?"
