"""A lake as tools for agents, over the Model Context Protocol.

The flow: `server` lists the tools and takes a call, `arguments` checks what was sent, `tools`
answers from the lake, and `answers` declares each answer as JSON and as text, kept short.
"""
