"""pydantic-ai over both APIs: a tool, and an output type as a form of the text and as a tool."""
import asyncio

from pydantic_ai import Agent, NativeOutput, Tool
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from timetable import AS_JSON, BASE_URL, DESCRIPTION, IS_DEMO, MODEL, PARAMETERS, Departure, Desk, check_departure

desk = Desk()
provider = OpenAIProvider(base_url=BASE_URL, api_key="none")
tool = Tool.from_schema(lambda **arguments: desk.look_up(arguments), name="departures", description=DESCRIPTION,
                        json_schema=PARAMETERS)


async def main():
    for kind in (OpenAIChatModel, OpenAIResponsesModel):
        for output in (NativeOutput(Departure), Departure)[:1 if IS_DEMO else 2]:  # the second one is a tool to call
            agent = Agent(kind(MODEL, provider=provider), tools=[tool], output_type=output, model_settings={"temperature": 0})
            check_departure((await agent.run(AS_JSON)).output)
            desk.check_called()
            async with agent.run_stream(AS_JSON) as streamed:
                check_departure(await streamed.get_output())
            desk.check_called()


asyncio.run(main())
