"""`deepjoin methods`."""

from __future__ import annotations

import argparse
import json

from deepjoin.search import METHODS
from deepjoin.search.render import aligned


def run(options: argparse.Namespace) -> None:
    """Print the table of methods."""
    if options.format == "json":
        for name, method in METHODS.items():
            fields = {"method": name, "joins": method.joins, "needs": method.needs}
            print(json.dumps(fields | {"summary": method.summary}, ensure_ascii=False))
        return
    rows = [
        (name, ", ".join(m.joins), ", ".join(m.needs), m.summary) for name, m in METHODS.items()
    ]
    print(aligned([("method", "joins", "needs", "what it is"), *rows]))
