"""Tools to search and to explain; without hits they say what was compared, and how near it came."""

from __future__ import annotations

from math import floor

from deepjoin.errors import DeepJoinError
from deepjoin.model import Column, EquiEvidence, Hit, Match, Results, SemanticEvidence
from deepjoin.serve.mcp.answers import Coverage, ExplainAnswer, HitAnswer, Pair, SearchAnswer
from deepjoin.serve.mcp.asked import AskExplain, AskSearch
from deepjoin.serve.mcp.bounds import Cutter, count, one_line
from deepjoin.serve.mcp.desk import Desk, query_name
from deepjoin.settings import SearchSettings
from deepjoin.show.words import cardinality_words, generic_words

#: Cells a hit of a search lists, and columns it says it brings.
_CELLS, _BROUGHT, _ALSO = 5, 20, 10


def search(desk: Desk, asked: AskSearch) -> SearchAnswer:
    """Find the columns that join with the query."""
    query, cutter = desk.query(asked), Cutter()
    results = _searched(desk, query, asked, asked.k, asked.min_joinability)
    if not results.query["size"]:
        raise DeepJoinError("The query column has no values: every cell is missing or blank.")
    answer = SearchAnswer(
        query=one_line(query_name(query)),
        query_size=results.query["size"],
        join=asked.join,
        compared_columns=desk.lake.report.columns - _own_columns(desk, query),
        compared_tables=desk.lake.report.tables - (query.table is not None),
        hits=[hit_answer(hit, cutter, _CELLS) for hit in results],
    )
    if results:
        note = "explain shows all evidence of a hit, preview_join the joined table."
        if len(results) == asked.k:
            cutter.tell(f"there may be more than {asked.k} hits; ask for a larger k")
        return answer.model_copy(update={"note": note, "cut": cutter.cut})
    return _nothing(desk, query, asked, answer, cutter)


def _searched(desk: Desk, query: Column, asked: AskSearch, k: int, least: float) -> Results:
    return desk.lake.search(
        query,
        k,
        join=asked.join,
        min_joinability=least,
        settings=SearchSettings(group="tables" if asked.one_per_table else None, matches=_CELLS),
    )


def _own_columns(desk: Desk, query: Column) -> int:
    """Count the columns that are not compared, since they are of the query's own table."""
    return 0 if query.table is None else len(desk.lake.index.indexed_columns(query.table))


def _nothing(
    desk: Desk, query: Column, asked: AskSearch, answer: SearchAnswer, cutter: Cutter
) -> SearchAnswer:
    """Say what was compared, what came nearest, and what to try."""
    nearest = _searched(desk, query, asked, 1, 0.0) if asked.min_joinability else ()
    best = hit_answer(nearest[0], cutter, _CELLS) if nearest else None
    compared = (
        f"Nothing joins: {count(answer.query_size, 'distinct value')} of {answer.query} compared "
        f"with {count(answer.compared_columns, 'column')} of "
        f"{count(answer.compared_tables, 'table')} (join {asked.join}). "
    )
    if best is None:
        found = _no_match(desk, asked)
    else:
        found = (
            f"None reaches min_joinability {asked.min_joinability:g}; without it the first hit is "
            f"{best.table}:{best.column} with joinability {best.joinability:.3f}."
        )
    advice = list(_advice(desk, asked, best))
    return answer.model_copy(
        update={
            "best_below": best,
            "advice": advice,
            "note": one_line(compared + found),
            "cut": cutter.cut,
        }
    )


def _no_match(desk: Desk, asked: AskSearch) -> str:
    if asked.join == "equi" or not desk.has_meaning:
        return "None of the values occurs in any of these columns."
    return "None of these columns holds a value that equals, or means the same as, one of them."


def _advice(desk: Desk, asked: AskSearch, best: HitAnswer | None) -> list[str]:
    """List what may help, the likeliest first."""
    tries = []
    if best is not None:
        reached = floor(100 * best.joinability) / 100
        tries.append(f"min_joinability={reached:g} or lower, if that is enough for you")
    if asked.join == "equi" and desk.has_meaning:
        tries.append("join='any', which also finds other spellings")
    if not desk.has_meaning:
        tries.append(
            "values spelled as the lake spells them: this index compares equal values only"
        )
    if asked.table is not None:
        tries.append(f"another column of {one_line(asked.table, 100)}: see describe_table")
    tries.append(
        "find_tables with one value or a word of the subject, to see what the lake is about"
    )
    return tries


def explain(desk: Desk, asked: AskExplain) -> ExplainAnswer:
    """Measure one pair of columns."""
    query, cutter = desk.query(asked), Cutter()
    target = asked.target_table, asked.target_column
    hit = desk.lake.explain(
        query, target, join=asked.join, settings=SearchSettings(matches=asked.cells)
    )
    evidence = hit_answer(hit, cutter, asked.cells)
    if desk.lake.settings.hash_only:
        cutter.tell("the index holds hashes of values: no cells can be listed")
    return ExplainAnswer(
        query=one_line(query_name(query)),
        joins=hit.matched > 0,
        evidence=evidence,
        note=_verdict(hit),
        cut=cutter.cut,
    )


def _verdict(hit: Hit) -> str:
    if not hit.matched:
        return "No value matches: these columns do not join."
    warning = generic_words(hit.generic)
    told = (
        f"{hit.matched:,} of {hit.query_size:,} values match; {cardinality_words(hit.cardinality)}."
    )
    return f"{told} {warning}".strip()


def hit_answer(hit: Hit, cutter: Cutter, cells: int) -> HitAnswer:
    """Give a hit with up to so many cells of each kind."""
    _tell_cells(hit, cutter, cells)
    return HitAnswer(
        rank=hit.rank,
        table=cutter.name(hit.table),
        column=cutter.name(hit.column),
        type=hit.type,
        joinability=hit.joinability,
        query_size=hit.query_size,
        target_size=hit.target_size,
        equal=_coverage(hit.equi),
        equal_or_similar=None if hit.semantic is None else _coverage(hit.semantic),
        cardinality=hit.cardinality,
        rows_meet=cardinality_words(hit.cardinality),
        warning=generic_words(hit.generic),
        found_by=list(hit.found_by),
        matches=[_pair(one, cutter) for one in hit.matches],
        unmatched=[cutter.cell(cell) for cell in hit.unmatched],
        brings=[cutter.cell(n) for n in cutter.some(hit.brings.columns, _BROUGHT, "new columns")],
        also=[cutter.cell(one.column) for one in cutter.some(hit.also, _ALSO, "other columns")],
        suggested_join=_suggested(hit),
    )


def _tell_cells(hit: Hit, cutter: Cutter, cells: int) -> None:
    """Say so if not all cells of a hit are listed."""
    for number, shown, what in (
        (hit.matched, len(hit.matches), "matched"),
        (hit.query_size - hit.matched, len(hit.unmatched), "unmatched"),
    ):
        if number > shown:
            cutter.tell(f"at most {cells} {what} cells a hit are listed")


def _pair(one: Match, cutter: Cutter) -> Pair:
    return Pair(
        query=cutter.cell(one.query), target=cutter.cell(one.target), similarity=one.similarity
    )


def _coverage(measured: EquiEvidence | SemanticEvidence) -> Coverage:
    return Coverage(
        of_query=measured.joinability, of_target=measured.reverse, matched=measured.matched
    )


def _suggested(hit: Hit) -> str:
    if hit.semantic is not None and hit.semantic.matched > hit.equi.matched:
        return "semantic"
    return "equi"
