"""What the programs of this folder ask and expect; the server's address and the model's name are their arguments."""
import sys

import pydantic

BASE_URL, MODEL = sys.argv[1:]
QUESTION = "When does the first coach from Greywell to Coldwater leave on Monday?"
IS_DEMO = MODEL == "demo-model"  # it knows no other tools, and answers a question for JSON from its own timetable
AS_JSON = QUESTION if IS_DEMO else QUESTION + " Answer as JSON."
ARGUMENTS = {"from": "Greywell", "to": "Coldwater", "day": "Monday"}
RESULT = '{"departures": ["07:41"]}'  # not the time of the demo model's timetable
PARAMETERS = {
    "type": "object",
    "properties": {"from": {"type": "string"}, "to": {"type": "string"}, "day": {"type": "string"}},
    "required": ["from", "to", "day"], "additionalProperties": False}
DESCRIPTION = "Looks up when coaches leave."


class Departure(pydantic.BaseModel):
    to: str
    departure: str = pydantic.Field(pattern=r"^\d\d:\d\d$")


def check_departure(value):
    assert isinstance(value, Departure) and value.to == "Coldwater", value


class Desk:
    """The tool: it notes what it was called with."""

    def __init__(self):
        self.calls = []

    def look_up(self, arguments):
        assert set(arguments) == set(ARGUMENTS), arguments
        self.calls.append(arguments)
        return RESULT

    def check_called(self, times=1):
        assert len(self.calls) == times, self.calls
        self.calls.clear()
