"""Write docs/reference.md from the docstrings: ``python tools/reference.py [--check]``.

Griffe reads the source without importing it; this only lays out what it found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference.md"
HEAD = """# Python reference

Everything `import deepjoin` offers, written from the docstrings by `make reference`.
For a guided tour see the [tutorial](tutorial.md).
"""


def public_objects() -> dict[str, griffe.Object | griffe.Alias]:
    """Return what `deepjoin.__all__` names, in its order."""
    package = griffe.load("deepjoin", search_paths=[ROOT / "src"], docstring_parser="numpy")
    names = [str(name).strip("'\"") for name in package.exports or ()]
    found = {}
    for name in names:
        if name.startswith("__"):
            continue
        member = package.members[name]
        found[name] = member.final_target if isinstance(member, griffe.Alias) else member
    return found


def page() -> str:
    """Return the whole page."""
    objects = public_objects()
    contents = " · ".join(f"[{name}](#{name.lower()})" for name in objects)
    sections = ["\n".join(section(name, one)) for name, one in objects.items()]
    return "\n".join([HEAD, contents, "", *sections])


def section(name: str, found: griffe.Object | griffe.Alias) -> Iterator[str]:
    """Lay out one public name, and the public members of a class."""
    yield f"## {name}\n"
    if found.is_function:
        yield signature(f"deepjoin.{name}", found)
    yield from described(found)
    if not found.is_class:
        return
    cached = [one for one in members(found) if is_cached(one)]
    attributes = [one for one in members(found) if one.is_attribute or one in cached]
    if attributes:
        yield "| attribute | type | |\n|---|---|---|"
        for one in attributes:
            kind = str(one.returns if one in cached else one.annotation or "").replace("|", "\\|")
            yield f"| `{one.name}` | `{kind}` | {summary(one)} |"
        yield ""
    for one in members(found):
        if one.is_function and one not in cached:
            yield f"### {name}.{one.name}\n"
            yield signature(f"{name.lower()}.{one.name}", one)
            yield from described(one)


def is_cached(found: griffe.Object | griffe.Alias) -> bool:
    """Tell a property of our own kind, which griffe takes for a method."""
    return found.is_function and any(
        one.callable_path == "deepjoin.lazy.cached_property" for one in found.decorators
    )


def summary(attribute: griffe.Object | griffe.Alias) -> str:
    """Return the first paragraph about an attribute: its docstring, or ``#:`` lines above."""
    if attribute.docstring is not None:
        return attribute.docstring.value.split("\n\n")[0].replace("\n", " ")
    lines = Path(str(attribute.filepath)).read_text("utf-8").splitlines()
    above: list[str] = []
    for line in reversed(lines[: (attribute.lineno or 1) - 1]):
        if not line.strip().startswith("#:"):
            break
        above.insert(0, line.strip().removeprefix("#:").strip())
    return " ".join(above)


def members(found: griffe.Object | griffe.Alias) -> list[griffe.Object | griffe.Alias]:
    """Return the public members of a class in the order of its source."""
    return [
        one for one in found.members.values() if not one.name.startswith("_") and not one.is_alias
    ]


def signature(name: str, found: griffe.Object | griffe.Alias) -> str:
    """Write a call with its defaults, one parameter a line where it would be long."""
    shown, starred = [], False
    for one in found.parameters:
        if one.name in ("self", "cls"):
            continue
        if one.kind is griffe.ParameterKind.keyword_only and not starred:
            shown.append("*")
            starred = True
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(str(one.kind.value), "")
        starred = starred or stars == "*"
        default = f"={one.default}" if one.default is not None and not stars else ""
        shown.append(f"{stars}{one.name}{default}")
    returns = f" -> {found.returns}" if found.returns not in (None, "None") else ""
    line = f"{name}({', '.join(shown)}){returns}"
    if len(line) > 90:
        line = f"{name}(\n    " + ",\n    ".join(shown) + f",\n){returns}"
    return f"```python\n{line}\n```\n"


def described(found: griffe.Object | griffe.Alias) -> Iterator[str]:
    """Lay out the sections of a docstring."""
    if found.docstring is None:
        return
    for part in found.docstring.parsed:
        if part.kind is griffe.DocstringSectionKind.text:
            for paragraph in part.value.strip().split("\n\n"):
                doctest = paragraph.startswith(">>>")
                yield f"```python\n{paragraph}\n```\n" if doctest else f"{paragraph}\n"
        elif part.kind is griffe.DocstringSectionKind.parameters:
            for one in part.value:
                yield f"- **{one.name}**: {' '.join(one.description.split())}"
            yield ""
        elif part.kind is griffe.DocstringSectionKind.examples:
            for _, text in part.value:
                yield f"```python\n{text.strip()}\n```\n"


def main() -> int:
    """Write the page, or say that it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if the page is out of date")
    text = page()
    if parser.parse_args().check:
        if PAGE.read_text("utf-8") != text:
            print("docs/reference.md is out of date: run make reference", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
