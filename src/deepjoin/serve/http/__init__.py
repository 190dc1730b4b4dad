"""The HTTP service: a lake behind a typed JSON API, and the page that is a client of it.

The flow: `running` starts worker processes, and each makes its `app`; `guard` checks requests;
`routes`, `joins` and `uploads` read them as `requests` and run the work in the bounded thread
pools of `service`, on the lake that `current` holds; `answers` documents and writes the results.
"""
