"""A lake served to people and programs: HTTP and MCP."""
