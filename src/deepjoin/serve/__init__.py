"""Serve a lake to people and programs: HTTP and MCP."""
