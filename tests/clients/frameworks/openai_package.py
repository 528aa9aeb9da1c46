"""The newest openai package: parsed responses and chat completions, tool calls, kept responses."""
import json

import openai
from timetable import AS_JSON, BASE_URL, DESCRIPTION, MODEL, PARAMETERS, QUESTION, Departure, Desk, check_departure

client = openai.OpenAI(base_url=BASE_URL, api_key="none", max_retries=0)
desk = Desk()
tools = [{"type": "function", "name": "departures", "description": DESCRIPTION, "parameters": PARAMETERS, "strict": True}]

# The responses of a conversation continue each other, and the last one is parsed.
first = client.responses.create(model=MODEL, temperature=0, input=AS_JSON, tools=tools)
(call,) = [item for item in first.output if item.type == "function_call"]
result = {"type": "function_call_output", "call_id": call.call_id, "output": desk.look_up(json.loads(call.arguments))}
last = client.responses.parse(model=MODEL, temperature=0, input=[result], previous_response_id=first.id, tools=tools, text_format=Departure)
check_departure(last.output_parsed)

# Kept responses are as they were answered, also streamed ones.
assert client.responses.retrieve(first.id).model_dump() == first.model_dump()
with client.responses.stream(model=MODEL, temperature=0, input=QUESTION) as stream:
    streamed = stream.get_final_response()
kept = client.responses.retrieve(streamed.id)
assert kept.output_text == streamed.output_text and kept.usage == streamed.usage
items = list(client.responses.input_items.list(last.id, order="asc", limit=1))
assert [item.type for item in items] == ["message", "function_call", "function_call_output"], items
assert items[1].arguments == call.arguments and items[2].output == result["output"]
client.responses.delete(first.id)
try:
    client.responses.retrieve(first.id)
    raise AssertionError("a deleted response is there")
except openai.NotFoundError as error:
    assert error.code == "response_not_found"

parsed = client.chat.completions.parse(model=MODEL, temperature=0, messages=[{"role": "user", "content": AS_JSON}],
                                       response_format=Departure)
check_departure(parsed.choices[0].message.parsed)
