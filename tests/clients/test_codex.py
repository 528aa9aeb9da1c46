"""Codex CLI against /v1/responses: it runs commands that the model calls for, and its long prompt is computed once."""
import json
import pathlib
import sys

from agents import CLOSING, COMMAND, PNG, PRINTED, Agent, check_cached, documented, needs
from scripted_model import call

pytestmark = needs("codex")

EXEC = call("exec_command", {"cmd": COMMAND})
OPTIONS = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
MCP_SERVER = f"""
[mcp_servers.coach]
command = "{sys.executable}"
args = ["{pathlib.Path(__file__).with_name("mcp_coach.py")}"]
required = true
startup_timeout_sec = 200
"""


def configure(agent, more=""):
    (agent.home / ".codex").mkdir()
    (agent.home / ".codex" / "config.toml").write_text(documented("toml codex", agent.address) + more)


def usages(agent):
    """(tokens of the prompt, cached ones) of each request."""
    ends = [exchange.events[-1]["response"]["usage"] for exchange in agent.exchanges]
    return [(usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]) for usage in ends]


def outputs(exchange):
    """The outputs of all calls in a request's input."""
    return json.dumps([item["output"] for item in exchange.json["input"] if item["type"] == "function_call_output"])


def test_a_command_and_its_result(tmp_path):
    with Agent("codex", tmp_path, [EXEC]) as agent:
        configure(agent)
        assert agent.run("exec", *OPTIONS, "Run the command.").strip() == CLOSING
        first, second = agent.exchanges
        assert PRINTED not in outputs(first) and PRINTED in outputs(second)
        assert usages(agent)[0][0] > 10_000
        check_cached(usages(agent))


def test_a_tool_of_an_mcp_server_a_picture_and_a_resumed_session(tmp_path):
    picture = tmp_path / "work" / "picture.png"
    replies = [call("mcp__coach__departures", {"stop": "Greywell"}), call("view_image", {"path": str(picture)}), EXEC]
    with Agent("codex", tmp_path, replies) as agent:
        picture.write_bytes(PNG)
        configure(agent, MCP_SERVER)
        assert agent.run("exec", *OPTIONS, "Run the command.").strip() == CLOSING
        assert "At nine from Greywell." in outputs(agent.exchanges[1])
        assert "input_image" in outputs(agent.exchanges[2]) and PRINTED in outputs(agent.exchanges[3])
        check_cached(usages(agent))
        computed = usages(agent)[-1][0]
        assert agent.run("exec", "resume", "--last", *OPTIONS, "And again.").strip() == CLOSING
        (continued,) = usages(agent)
        check_cached([(computed, 0), continued])
