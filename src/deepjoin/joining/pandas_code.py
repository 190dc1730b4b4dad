"""The same join as pandas code."""

from __future__ import annotations

from pathlib import Path

from deepjoin.joining.columns import MAX_VALUES, Aggregate, free_name
from deepjoin.joining.session import Session
from deepjoin.joining.sql import JoinSql, stored_pairs
from deepjoin.joining.tables import SideTable

_KEY = """\
import pandas as pd
from deepjoin.normalise.canonical import canonical

# yours is {left}, theirs is {right}, both read as text
def key(cell):
    return canonical(str(cell), {profile}) or None if pd.notna(cell) else None

"""
#: Before the merge, for a key of several columns.
_TUPLES = """\
def tuple_key(frame, columns):
    rows = zip(*(frame[column].map(key) for column in columns))
    keys = [None if any(pd.isna(part) for part in row) else chr(31).join(row) for row in rows]
    return pd.Series(keys, frame.index, dtype=object)

"""
_AGGREGATES = f"""\
def numbers(cells):
    return pd.to_numeric(cells, errors="coerce")

def filled(cells):
    texts = cells.dropna().astype(str).str.strip(" ")
    return texts[texts != ""]

def listed(cells):
    distinct = sorted(set(filled(cells)))
    more = f"; and {{len(distinct) - {MAX_VALUES}}} more" if len(distinct) > {MAX_VALUES} else ""
    return "; ".join(distinct[:{MAX_VALUES}]) + more or None

"""
_MERGE = """\
keys = {right_key}
matches = theirs{columns}.assign({name}=keys).dropna(subset="{name}"){once}
joined = yours.assign({name}={left_key}).merge(matches, how="{how}", on="{name}")
joined = joined.drop(columns="{name}"){counted}
"""


_PAIRS = """\
pairs = {pairs}
pairs.columns = ["{name}", "{target}", {between}]
keys = {right_key}
matches = theirs{columns}.assign({target}=keys, {place}=range(len(theirs)))
matches = pairs.merge(matches, on="{target}")
matches = matches.sort_values([{similarity}, "{place}"], ascending=[False, True])
matches = matches.drop(columns=["{target}", "{place}"]){once}
joined = yours.assign({name}={left_key}).merge(matches, how="{how}", on="{name}")
joined = joined.drop(columns="{name}"){counted}
"""


_NO_PAIRS = "pd.DataFrame({0: pd.Series(dtype=str), 1: pd.Series(dtype=str), 2: 0.0})"


def pandas_code(join: JoinSql, profile: str, session: Session, file: Path | None = None) -> str:
    """Write the join over the data frames `yours` and `theirs`; ``file`` may hold the pairs."""
    left, right = join.left.source, join.right.source
    # Columns that the code adds must not overwrite one of a table or of the result.
    outputs = (*join.left_columns, *join.between, *join.right_columns)
    taken = {column.name.lower() for column in outputs}
    taken |= {column.original.lower() for column in (*left.columns, *right.columns)}
    name, target, place = (free_name(word, taken) for word in ("_key", "_target", "_place"))
    # Keys come from deepjoin's own canonical strings, so that both ways match the same rows.
    code = _KEY.format(left=repr(left.table), right=repr(right.table), profile=repr(profile))
    words = {"name": name, "target": target, "place": place, "how": join.how}
    words |= {"left_key": _keys("yours", left), "right_key": _keys("theirs", right)}
    words |= {"columns": "", "once": "", "counted": ""}
    if left.more:
        code += _TUPLES
    if join.many == "aggregate":
        code += _AGGREGATES
        counted = repr(join.right_columns[0].name)
        words["once"] = f'.groupby("{name}").agg(**{{\n    {_aggregated(join)},\n}})'
        # Rows without a match have 0 matching rows.
        words["counted"] = f".fillna({{{counted}: 0}}).astype({{{counted}: int}})"
    else:
        names = {one.source.original: one.name for one in join.right_columns if one.source}
        if len(names) < len(right.columns):
            words["columns"] = f"[{list(names)!r}]"
        # Columns that clash are renamed before merge would rename them in its own way.
        changed = {old: new for old, new in names.items() if old != new}
        words["columns"] += f".rename(columns={changed!r})" if changed else ""
        words["once"] = f'.drop_duplicates("{name}")' if join.many == "first" else ""
    if join.pairs is None:
        return code + _MERGE.format(**words)
    if file:
        listed = f"pd.read_parquet({str(file)!r})"
    else:
        pairs = stored_pairs(session, join.pairs, join.pair_columns)
        rows = "".join(f"    {pair!r},\n" for pair in pairs)
        columns = len(join.pair_columns)
        listed = f"pd.DataFrame([\n{rows}], columns=range({columns}))" if rows else _NO_PAIRS
    between = [repr(one.name) for one in join.between]
    return code + _PAIRS.format(
        **words, similarity=between[0], between=", ".join(between), pairs=listed
    )


def _keys(frame: str, side: SideTable) -> str:
    """Write the keys of a frame: the canonical strings of a column, or of several."""
    if not side.more:
        return f"{frame}[{side.key.original!r}].map(key)"
    return f"tuple_key({frame}, {[column.original for column in side.keys]!r})"


def _aggregated(join: JoinSql) -> str:
    """List the aggregated columns, as arguments of pandas' named aggregation."""
    # All rows of a key have the same alternatives, or none.
    columns = {
        each.name: (repr(each.name), how)
        for each, how in zip(join.between, ("'max'", "'first'"), strict=False)
    }
    columns[join.right_columns[0].name] = (repr(join.right.source.key.original), "'size'")
    for each, output in zip(join.aggregates, join.right_columns[1:], strict=True):
        columns[output.name] = (repr(each.column.original), _function(each))
    return ",\n    ".join(
        f"{output!r}: ({column}, {how})" for output, (column, how) in columns.items()
    )


def _function(aggregate: Aggregate) -> str:
    """Write an aggregate as a function of the cells of a column, which are text."""
    match aggregate.function:
        case "list":
            return "listed"
        case "count":
            return "lambda cells: len(filled(cells))"
        case "first":
            return "lambda cells: cells.iloc[0]"
    cells = "numbers(cells)" if aggregate.column.is_numeric else "filled(cells)"
    return f"lambda cells: {cells}.{aggregate.function}()"
