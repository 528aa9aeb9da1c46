"""What the programs of this folder ask and expect; the server's address and the model's name are their arguments."""
import sys

import pydantic

BASE_URL, MODEL = sys.argv[1:]
QUESTION = "When does the first coach from Greywell to Coldwater leave on Monday?"
AS_JSON = QUESTION + " Answer as JSON."
ARGUMENTS = {"from": "Greywell", "to": "Coldwater", "day": "Monday"}
RESULT = "07:40 from the west side"
PARAMETERS = {
    "type": "object",
    "properties": {"from": {"type": "string"}, "to": {"type": "string"}, "day": {"type": "string"}},
    "required": ["from", "to", "day"], "additionalProperties": False}
DESCRIPTION = "Looks up when coaches leave."


class Departure(pydantic.BaseModel):
    stop: str
    hour: int


def check_departure(value):
    assert isinstance(value, Departure) and value.stop and 0 <= value.hour < 24, value


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
