"""A tool for tests of the APIs that agents use, and what they compare with: /v1/chat/completions."""
import structured
from wire import ask
from workload import GOLDEN

PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Åre", "Rome"]}, "days": {"type": "integer", "minimum": 1,
                                                                                        "maximum": 9}},
              "required": ["city"], "additionalProperties": False}
CHAT_TOOLS = [{"type": "function",
               "function": {"name": "weather", "description": "How it will be", "parameters": PARAMETERS}}]
BIAS = {str(token): bias for token, bias in structured.closing_bias(GOLDEN / "qwen2").items()}


def chat(cluster, **body):
    response = ask(cluster.http, "POST", "/v1/chat/completions", body)
    assert response.status == 200, response.body
    return response.json
