"""The same join as pandas code, for those who would rather run it themselves."""

from __future__ import annotations

from pathlib import Path

from deepjoin.joining.names import free_name
from deepjoin.joining.select import MAX_VALUES, aggregates
from deepjoin.joining.session import Session
from deepjoin.joining.shown import stored_pairs
from deepjoin.joining.sql import JoinSql

_KEY = """\
import pandas as pd
from deepjoin.normalise.canonical import canonical

# yours is {left}, theirs is {right}, both read as text
def key(cell):
    return canonical(str(cell), {profile}) or None if pd.notna(cell) else None

"""
_AGGREGATES = f"""\
def mean(cells):
    return pd.to_numeric(cells, errors="coerce").mean()

def values(cells):
    distinct = sorted({{str(cell).strip(" ") for cell in cells.dropna()}} - {{""}})
    more = f"; and {{len(distinct) - {MAX_VALUES}}} more" if len(distinct) > {MAX_VALUES} else ""
    return "; ".join(distinct[:{MAX_VALUES}]) + more or None

"""
_MERGE = """\
keys = theirs[{right_key}].map(key)
matches = theirs{columns}.assign({name}=keys).dropna(subset="{name}"){once}
joined = yours.assign({name}=yours[{left_key}].map(key)).merge(matches, how="{how}", on="{name}")
joined = joined.drop(columns="{name}"){counted}
"""


_PAIRS = """\
pairs = {pairs}
pairs.columns = ["{name}", "{target}", {similarity}]
keys = theirs[{right_key}].map(key)
matches = theirs{columns}.assign({target}=keys, {place}=range(len(theirs)))
matches = pairs.merge(matches, on="{target}")
matches = matches.sort_values([{similarity}, "{place}"], ascending=[False, True])
matches = matches.drop(columns=["{target}", "{place}"]){once}
joined = yours.assign({name}=yours[{left_key}].map(key)).merge(matches, how="{how}", on="{name}")
joined = joined.drop(columns="{name}"){counted}
"""


def pandas_code(join: JoinSql, profile: str, session: Session, file: Path | None = None) -> str:
    """Write the join over the data frames `yours` and `theirs`; ``file`` may hold the pairs."""
    left, right = join.left.source, join.right.source
    name, target, place = (_free(join, word) for word in ("_key", "_target", "_place"))
    code = _KEY.format(left=repr(left.table), right=repr(right.table), profile=repr(profile))
    if join.many == "aggregate":
        code += _AGGREGATES
    words = {"name": name, "target": target, "place": place, "how": join.how}
    words |= {"left_key": repr(left.key.original), "right_key": repr(right.key.original)}
    words |= {"columns": _renamed(join), "once": _once(join, name), "counted": _counted(join)}
    if join.pairs is None:
        return code + _MERGE.format(**words)
    similarity = repr(join.between[0].name)
    pairs = f"pd.read_parquet({str(file)!r})" if file else _listed(session, join.pairs)
    return code + _PAIRS.format(**words, similarity=similarity, pairs=pairs)


def _listed(session: Session, stored: str) -> str:
    rows = "".join(f"    {pair!r},\n" for pair in stored_pairs(session, stored))
    return f"pd.DataFrame([\n{rows}], columns=range(3))" if rows else _NO_PAIRS


_NO_PAIRS = "pd.DataFrame({0: pd.Series(dtype=str), 1: pd.Series(dtype=str), 2: 0.0})"


def _free(join: JoinSql, word: str) -> str:
    """Name a column that the code adds so that no column of a table is overwritten."""
    columns = (*join.left.source.columns, *join.right.source.columns)
    added = (*join.left_columns, *join.between, *join.right_columns)
    outputs = {column.name.lower() for column in added}
    return free_name(word, outputs | {column.original.lower() for column in columns})


def _renamed(join: JoinSql) -> str:
    """Rename what clashes, before the merge does it in its own way."""
    if join.many == "aggregate":
        return ""
    pairs = zip(join.right.source.columns, join.right_columns, strict=True)
    names = {column.original: output.name for column, output in pairs}
    changed = {old: new for old, new in names.items() if old != new}
    return f".rename(columns={changed!r})" if changed else ""


def _once(join: JoinSql, name: str) -> str:
    """Bring the right table to one row a key, if that is asked for."""
    if join.many == "first":
        return f'.drop_duplicates("{name}")'
    if join.many == "expand":
        return ""
    key = repr(join.right.source.key.original)
    columns = {each.name: (repr(each.name), "'max'") for each in join.between}
    columns[join.right_columns[0].name] = (key, "'size'")
    for each, output in zip(aggregates(join.right.source), join.right_columns[1:], strict=True):
        columns[output.name] = (repr(each.column.original), "mean" if each.is_mean else "values")
    listed = ",\n    ".join(
        f"{output!r}: ({column}, {how})" for output, (column, how) in columns.items()
    )
    return f'.groupby("{name}").agg(**{{\n    {listed},\n}})'


def _counted(join: JoinSql) -> str:
    """Let rows without a match have 0 matching rows."""
    if join.many != "aggregate":
        return ""
    name = repr(join.right_columns[0].name)
    return f".fillna({{{name}: 0}}).astype({{{name}: int}})"
