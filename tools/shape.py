"""Print how the source is built, counted by its syntax trees: ``python tools/shape.py [SRC]``."""

from __future__ import annotations

import ast
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def shape(package: Path) -> dict[str, object]:
    """Count what makes a code base hard to live in."""
    files = sorted(package.rglob("*.py"))
    texts = {path: path.read_text("utf-8") for path in files}
    lines = sum(text.count("\n") for text in texts.values())
    classes, functions, called_once, comments = defaultdict(set), 0, 0, 0
    asked, most = 0, 0
    for path, text in texts.items():
        tree = ast.walk(ast.parse(text))
        nodes = list(tree)
        calls = Counter(map(_called, nodes))
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                classes[node.name].add(path)
            elif isinstance(node, Function):
                functions += 1
                is_private = node.name.startswith("_") and not node.name.startswith("__")
                called_once += is_private and calls[node.name] == 1
                most = most if is_private else max(most, _parameters(node))
            elif _asks_for_a_source(node) and package / "read" not in path.parents:
                asked += 1
        with path.open("rb") as file:
            comments += sum(
                one.type == tokenize.COMMENT for one in tokenize.tokenize(file.readline)
            )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    return {
        "files": len(files),
        "lines": lines,
        "class names in several modules": sum(len(paths) > 1 for paths in classes.values()),
        "functions": functions,
        "private functions called once": f"{called_once / functions:.1%}",
        "import layers": len(contract["layers"]),
        "isinstance of a source outside read/": asked,
        "most parameters of a public function": most,
        "comments in 100 lines": f"{100 * comments / lines:.1f}",
    }


def _called(node: ast.AST) -> str:
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "id", getattr(function, "attr", ""))


def _parameters(function: Function) -> int:
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def _asks_for_a_source(node: ast.AST) -> bool:
    if _called(node) != "isinstance" or not isinstance(node, ast.Call):
        return False
    names = (getattr(one, "id", getattr(one, "attr", "")) for one in ast.walk(node.args[1]))
    return any(name.endswith("Source") for name in names)


if __name__ == "__main__":
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src"
    for name, value in shape(source / "deepjoin").items():
        print(f"{name:<40}{value}")
