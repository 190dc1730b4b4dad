"""The HTTP service: a lake behind a typed JSON API, and the page that is a client of it.

The flow, a module a step: `running` starts worker processes, each makes its `app`; `guard` lets
requests in, the `*_routes` read them as `requests`, `work` runs what they ask in a bounded pool
of threads on the lake that `current` holds, and `answers` writes what comes of it as `models` say.
"""
