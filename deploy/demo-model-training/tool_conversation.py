"""Draws conversations in which the visitor's program offers tools.

A question that a tool helps to answer becomes a call, its result and an answer from the result. All
other questions are answered at once, as without tools. What is held out is the same as in
conversation.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import tools as tl
from answers import Query
from conversation import Turn, draw_turn
from systems import Context, system_message


@dataclass(frozen=True)
class ToolConversation:
    messages: list[dict]  # ends with the desk's reply to the last question
    tools: list[dict]

    @property
    def called(self) -> bool:
        """Whether the last question led to a call."""
        return self.messages[-2]["role"] == "tool"


def _context(rng: random.Random) -> tuple[Context, str]:
    context, system = system_message(rng)
    while context.json:
        context, system = system_message(rng)
    return context, system


def _turn(rng: random.Random, held_out: bool, previous: Query | None, context: Context) -> Turn:
    turn = draw_turn(rng, held_out, previous, context)
    while turn.query.as_json or turn.query.day == "weekend":
        turn = draw_turn(rng, held_out, previous, context)
    return turn


def _call_and_answer(rng: random.Random, q: Query, tool: tl.Tool) -> list[dict]:
    if tool.kind == "departures":
        rides, content = tl.departures_result(rng, q)
        answer = tl.answer_from_departures(q, rides)
    else:
        fares, content = tl.fare_result(rng, q)
        answer = tl.answer_from_fares(q, fares)
    call = {"type": "function", "function": {"name": tool.name,
                                             "arguments": tl.arguments_of(q, tool)}}
    return [{"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "name": tool.name, "content": content},
            {"role": "assistant", "content": answer}]


def draw_tool_conversation(rng: random.Random, held_out: bool = False) -> ToolConversation:
    """With `held_out` the last question is held out, and any before it are ordinary ones."""
    context, system = _context(rng)
    tools = tl.offered_tools(rng)
    messages = [{"role": "system", "content": system}] if system else []
    turns = rng.choices((1, 2, 3), (60, 28, 12))[0]
    previous = None
    for i in range(turns):
        turn = _turn(rng, held_out and i == turns - 1, previous, context)
        tool = tl.tool_for(turn.query, tools)
        messages.append({"role": "user", "content": turn.user})
        if tool:
            messages += _call_and_answer(rng, turn.query, tool)
        else:
            messages.append({"role": "assistant", "content": turn.reply})
        # "The one after that" would mean the result's coach, which the query does not know.
        previous = None if tool and turn.query.task in ("next", "first") else turn.query
    return ToolConversation(messages, [tool.definition for tool in tools])
