"""langchain-openai over both APIs: bound tools, their results, structured output, streams."""
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from timetable import AS_JSON, BASE_URL, DESCRIPTION, MODEL, PARAMETERS, QUESTION, Departure, Desk, check_departure

desk = Desk()
tool = {"type": "function", "function": {"name": "departures", "description": DESCRIPTION, "parameters": PARAMETERS}}
for use_responses_api in (False, True):
    model = ChatOpenAI(base_url=BASE_URL, model=MODEL, api_key="none", max_retries=0, temperature=0, use_responses_api=use_responses_api)
    asked = HumanMessage(QUESTION)
    bound = model.bind_tools([tool])
    for choice in (None, "any", "departures"):
        answer = model.bind_tools([tool], tool_choice=choice).invoke([asked])
        (call,) = answer.tool_calls
    whole = AIMessageChunk(content="")
    for chunk in bound.stream([asked]):
        whole += chunk
    assert [one["args"] for one in whole.tool_calls] == [call["args"]]
    result = ToolMessage(desk.look_up(call["args"]), tool_call_id=call["id"])
    final = bound.invoke([asked, answer, result])
    assert final.text and not final.tool_calls and final.usage_metadata["output_tokens"] > 0
    check_departure(model.with_structured_output(Departure, method="json_schema").invoke(AS_JSON))
