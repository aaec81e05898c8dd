"""The tools of an MCP server."""
