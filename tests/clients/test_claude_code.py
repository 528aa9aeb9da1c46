"""Claude Code against /v1/messages: it runs commands that the model calls for, and its long prompt is computed once."""
import json
import shlex

from agents import CLOSING, COMMAND, PNG, PRINTED, Agent, check_cached, documented, needs
from scripted_model import call

pytestmark = needs("claude")

BASH = call("Bash", {"command": COMMAND, "description": "Prints a word"})
ALLOWED = ["--allowedTools", "Bash,Read,ToolSearch", "--output-format", "json"]


def ask(agent, *arguments):
    """The result of one `claude -p`, with the environment that docs/agents.md gives."""
    lines = documented("sh claude-code", agent.address).splitlines()
    settings = dict(word.split("=", 1) for line in lines if line.startswith("export ") for word in shlex.split(line)[1:])
    assert lines[-1] == "claude"
    return json.loads(agent.run("-p", *arguments, *ALLOWED, **settings))


def usages(agent):
    """(tokens of the prompt, cached ones) of each request."""
    found = []
    for exchange in agent.exchanges:
        (usage,) = [event["usage"] for event in exchange.events if event["type"] == "message_delta"]
        found.append((usage["input_tokens"] + usage["cache_read_input_tokens"], usage["cache_read_input_tokens"]))
    return found


def results(exchange):
    """The texts of all tool results of a request."""
    blocks = [block for message in exchange.json["messages"] if isinstance(message["content"], list)
              for block in message["content"] if block["type"] == "tool_result"]
    return json.dumps([block["content"] for block in blocks])


def test_a_command_and_its_result(tmp_path):
    with Agent("claude", tmp_path, [BASH]) as agent:
        result = ask(agent, "Run the command.")
        assert result["result"] == CLOSING and result["num_turns"] == 2 and not result["is_error"]
        assert result["modelUsage"]["my-model"]["contextWindow"] == 65536
        first, second = agent.exchanges
        assert PRINTED not in results(first) and PRINTED in results(second)
        assert usages(agent)[0][0] > 10_000
        check_cached(usages(agent))


def test_a_tool_that_is_loaded_later_a_picture_and_a_continued_session(tmp_path):
    picture = tmp_path / "work" / "picture.png"
    replies = [call("ToolSearch", {"query": "select:WebFetch"}), BASH, call("Read", {"file_path": str(picture)})]
    with Agent("claude", tmp_path, replies) as agent:
        picture.write_bytes(PNG)
        result = ask(agent, "Run the command.")
        assert result["result"] == CLOSING and result["num_turns"] == 4
        assert "tool_reference" in results(agent.exchanges[1]) and PRINTED in results(agent.exchanges[2])
        assert '"image"' in results(agent.exchanges[3])
        check_cached(usages(agent), least=0.9)  # the definition of the tool is new
        computed = usages(agent)[-1][0]
        assert ask(agent, "--continue", "And again.")["result"] == CLOSING
        (continued,) = usages(agent)
        check_cached([(computed, 0), continued])
