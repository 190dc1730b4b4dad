"""A lake as tools for agents, by the Model Context Protocol.

The flow, a module a step: `server` takes a call, `asked` checks its arguments, `lake_tools`,
`search_tools` and `join_tools` answer it from the lake, `answers` says what an answer holds,
`telling` writes it for reading, `bounds` keeps it short; `tools` is the table of all of them.
"""
