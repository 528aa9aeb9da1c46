"""Tests that the generator's answers agree with the timetable. Needs only the standard library and
pytest."""

import itertools
import json
import random
import re

import pytest
import timetable as tt
from answers import JSON_TASKS, ON_DAY, PAIR_TASKS, Query, answer
from conversation import TASKS, WORKED_OUT, draw_conversation, is_held_out
from phrases import QUESTIONS
from wording import day_type, expand, roughen, time_phrase

PAIRS = list(itertools.permutations(tt.STOPS, 2))
CLOCK = re.compile(r"\d\d:\d\d")


def test_every_pair_is_connected_on_every_day():
    for origin, destination in PAIRS:
        for day in tt.DAYS:
            assert tt.journeys(origin, destination, day), (origin, destination, day)


def test_journeys_are_in_order_and_leave_time_to_change():
    for origin, destination in PAIRS:
        for day in tt.DAYS:
            found = tt.journeys(origin, destination, day)
            assert [j.departure for j in found] == sorted({j.departure for j in found})
            for j in found:
                assert (j.legs[0].origin, j.legs[-1].destination) == (origin, destination)
                assert j.departure < j.arrival < 24 * 60
                if j.change:
                    assert j.legs[1].departure - j.legs[0].arrival >= tt.CONNECTION_MIN
                    assert j.legs[0].destination == j.legs[1].origin


def test_a_coach_passes_its_stops_in_order():
    for line in tt.LINES:
        for day in tt.DAYS:
            for outward in (True, False):
                runs = tt.trips(line, day, outward)
                assert len(runs) == tt.TRIPS_PER_DAY[day]
                for run in runs:
                    moments = [t for pair in zip(run.arrivals, run.departures) for t in pair]
                    assert moments == sorted(moments)


def test_next_and_by_answers_are_the_best_choice():
    rng = random.Random(1)
    for origin, destination in PAIRS:
        for day in tt.DAYS:
            at = rng.randrange(5 * 60, 22 * 60)
            later = [j for j in tt.journeys(origin, destination, day) if j.departure > at]
            assert tt.next_journey(origin, destination, day, at) == (later[0] if later else None)
            early = [j for j in tt.journeys(origin, destination, day) if j.arrival <= at]
            assert tt.journey_by(origin, destination, day, at) == (early[-1] if early else None)


def test_fares_are_whole_numbers_symmetric_and_cheaper_as_a_return():
    for a, b in PAIRS:
        single = tt.adult_fare(a, b)
        assert single == tt.adult_fare(b, a) and single > 0
        assert 2 * tt.half_fare(a, b) == single
        assert tt.adult_fare(a, b, True) == 2 * single - 2 == 2 * tt.half_fare(a, b, True)


@pytest.mark.parametrize("task", ["group", "group_return"])
def test_group_answers_add_up(task):
    rng = random.Random(task)
    for a, b in PAIRS:
        group = tuple(rng.randrange(5) for _ in range(3))
        if sum(group) < 2:
            continue
        q = Query(task, a, b, group=group)
        said = answer(q)
        parts = [tuple(map(int, found)) for found in
                 re.findall(r"(\d+) \w+ at \$(\d+) makes? \$(\d+)", said)]
        total = int(re.search(r"The total is \$(\d+)\.", said)[1])
        assert [n for n, _, _ in parts] == [n for n in group if n]
        assert all(n * price == amount for n, price, amount in parts)
        assert total == sum(amount for _, _, amount in parts)
        assert json.loads(answer(Query(task, a, b, group=group, as_json=True)))["total"] == total


def test_listed_departures_match_the_timetable():
    for a, b in PAIRS:
        for day in tt.DAYS:
            times = [tt.clock(j.departure) for j in tt.journeys(a, b, day)]
            said = answer(Query("departures", a, b, day))
            assert CLOCK.findall(said) == times
            assert ON_DAY[day] in said.lower().replace("saturday", "Saturday").replace(
                "sunday", "Sunday")
            as_object = json.loads(answer(Query("departures", a, b, day, as_json=True)))
            assert as_object == {"from": a, "to": b, "day": day, "departures": times}


@pytest.mark.parametrize("task", sorted(JSON_TASKS & set(PAIR_TASKS)))
def test_json_answers_are_compact_objects(task):
    for a, b in PAIRS:
        text = answer(Query(task, a, b, "sunday", 9 * 60, (2, 1, 0), as_json=True))
        assert json.dumps(json.loads(text), separators=(",", ":")) == text
        assert json.loads(text)["from"] == a and json.loads(text)["to"] == b


@pytest.mark.parametrize("phrase, minutes", [("9:20", 560), ("2 pm", 840), ("noon", 720),
                                             ("half past 8", 510), ("quarter to ten", 585)])
def test_spoken_times_have_the_right_value(phrase, minutes):
    rng = random.Random(3)
    assert phrase in {time_phrase(rng, minutes) for _ in range(2000)}


def test_day_names_select_the_timetable():
    assert [day_type(d) for d in ("Monday", "Friday", "Saturday", "Sunday")] == [
        "weekday", "weekday", "saturday", "sunday"]


def test_wordings_expand_completely():
    rng = random.Random(4)
    for task, grammars in QUESTIONS.items():
        for grammar in grammars:
            for _ in range(20):
                form = expand(rng, grammar)
                assert form and not set("{}|") & set(form), (task, grammar)


def test_careless_typing_does_not_change_digits():
    rng = random.Random(5)
    for _ in range(500):
        typed = roughen(rng, "from Alderwick at 09:20 for 3 adults")
        assert re.findall(r"\d", typed) == list("09203")


def test_conversations_are_reproducible_and_alternate():
    first = [draw_conversation(random.Random(n)) for n in range(200)]
    assert first == [draw_conversation(random.Random(n)) for n in range(200)]
    for messages, _ in first:
        roles = [m["role"] for m in messages if m["role"] != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        assert all(m["content"] for m in messages)
        assert all(not re.search(r"<\w+>|[{}|]", m["content"]) for m in messages
                   if m["role"] == "user")


def test_training_and_evaluation_never_share_a_question():
    trained = set()
    for seed in range(1500):
        messages, _ = draw_conversation(random.Random(seed))
        if len(messages) == 2:
            trained.add(messages[0]["content"].lower())
    held_out = [draw_conversation(random.Random(seed), held_out=True) for seed in range(1500)]
    journeys_asked = [m[0]["content"].lower() for m, task in held_out
                      if len(m) == 2 and task in WORKED_OUT]
    assert len(journeys_asked) > 50
    assert not trained & set(journeys_asked)


def test_a_fixed_share_is_held_out():
    share = sum(is_held_out("fare", "form", (n,)) for n in range(20_000)) / 20_000
    assert 0.04 < share < 0.06
    assert is_held_out("group", "one form", ("x",)) == is_held_out("group", "another", ("x",))


def test_every_task_is_drawn():
    rng = random.Random(6)
    drawn = {draw_conversation(rng)[1] for _ in range(4000)}
    assert drawn >= set(TASKS) | {"json", "follow_up", "follow_up_json"}
