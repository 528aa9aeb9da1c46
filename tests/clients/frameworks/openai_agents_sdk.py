"""OpenAI's Agents SDK over both APIs: an agent with a tool and an output type."""
import asyncio
import json

import openai
from agents import (
    Agent,
    FunctionTool,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    set_tracing_disabled,
)
from timetable import AS_JSON, BASE_URL, DESCRIPTION, MODEL, PARAMETERS, Departure, Desk, check_departure

set_tracing_disabled(True)
desk = Desk()


async def look_up(_, arguments):
    return desk.look_up(json.loads(arguments))


async def main():
    async with openai.AsyncOpenAI(base_url=BASE_URL, api_key="none", max_retries=0) as client:
        for kind in (OpenAIResponsesModel, OpenAIChatCompletionsModel):
            agent = Agent(name="desk", model=kind(model=MODEL, openai_client=client), output_type=Departure,
                          model_settings=ModelSettings(temperature=0), tools=[
                FunctionTool(name="departures", description=DESCRIPTION, params_json_schema=PARAMETERS, on_invoke_tool=look_up)])
            check_departure((await Runner.run(agent, AS_JSON)).final_output)
            desk.check_called()
            streamed = Runner.run_streamed(agent, AS_JSON)
            kinds = {event.type async for event in streamed.stream_events()}
            assert {"raw_response_event", "run_item_stream_event"} <= kinds, kinds
            check_departure(streamed.final_output)
            desk.check_called()


asyncio.run(main())
