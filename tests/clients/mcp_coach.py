"""An MCP server on standard input and output with one tool."""
from mcp.server import MCPServer

server = MCPServer("coach")


@server.tool()
def departures(stop: str) -> str:
    """When coaches leave."""
    return f"At nine from {stop}."


server.run()
