"""Build and change an index: `pipeline` shows the flow that every writing command runs."""
