"""The default search: every candidate verified, keys that say little ranked last.

Equi-joins count equal cells (`EquiSearch`). Joins "semantic" and "any" count similar cells as
well (`SemanticSearch`). Either way the steps are: query, candidates, scores, ranking, evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Lock

import numpy as np

from deepjoin.arrays import Double, Float, Int
from deepjoin.embed.cells import CellEncoder
from deepjoin.embed.cells.tokens import text_array
from deepjoin.embed.value_vectors import PROBES
from deepjoin.errors import DeepJoinError, UnknownName
from deepjoin.model import Column, Hit, Partial
from deepjoin.normalise.canonical import CellType, cell_types
from deepjoin.search.candidates import Overlap, SimilarCells
from deepjoin.search.context import SearchContext
from deepjoin.search.evidence import EQUAL_CELLS, ColumnMatch, Place, equi_hits, semantic_hits
from deepjoin.search.likely import QueryFacts, TargetFacts, decisions
from deepjoin.search.query import SearchOptions, SearchQuery
from deepjoin.search.ranking import (
    CHANCE_DIGITS,
    EquiRanking,
    Key,
    RankedColumns,
    Ranking,
    Rarity,
    SemanticRanking,
    best_rows,
    merge_segments,
    name_similarity,
    rank_by_meaning,
    rank_keys,
)
from deepjoin.search.rewriting import columns_by_program
from deepjoin.search.scores import NAME_WEIGHT, ColumnScores, PairScore
from deepjoin.search.searcher import Searcher, Stopwatch
from deepjoin.store.segment import Segment
from deepjoin.store.values.profile import Generic

#: Candidates whose probability is estimated at most; of these, how many are ranked by the values
#: found so far: at least _RANKED, and _TIMES times k.
_WEIGHED, _RANKED, _TIMES = 2_000, 400, 8
#: Columns measured in a round (or k, if that is more), until the best stay the same, and in all.
_ROUND, _MEASURED = 50, 600
#: Estimated probabilities that are nearer than this are equal: then more matching cells decide, as
#: in the final order.
_DIGITS = 2
#: How much more columns are measured if too few of these hold a match.
_GROWTH = 8
#: Cells looked up to find candidates: of a larger query, a sample.
_SAMPLE = 512
#: Pairs of cells and values that a large query may compare: about a second.
_PAIRS = 1 << 29
#: Cells encoded at a time; the time limit is checked after each block of these.
_ENCODED = 1 << 12
#: Cells looked up at a time in lists, which are scanned for 64 together, and in all values.
_BLOCK, _SCANNED = 1 << 6, 1 << 9
#: If a block of cells finds fewer columns than this, _MORE lists are scanned for each cell.
_SPARSE, _MORE = 500, 48
#: Names whose vectors are kept at most.
_NAMES = 1 << 16
#: What the reverse coverage adds to a score when the columns to measure are chosen.
_TIE = 0.05


def hybrid(context: SearchContext, join: str, tau: float | None) -> Searcher:
    """Search by equal cells for "equi", by what cells mean for "semantic" and "any".

    Without cell vectors, "any" means equal cells alone, and the hits say so.
    """
    for segment in context.segments:
        segment.expect_lookups()
    if _by_equality(context, join):
        places = context.segments, context.profile, context.key
        return EquiSearch(*places, demote_generic=True, heed_decisions=join == "any")
    encoder = context.cell_encoder()
    return SemanticSearch(context.segments, context.profile, encoder, join, tau)


def _by_equality(context: SearchContext, join: str) -> bool:
    return join == "equi" or (join == "any" and not context.has_cells)


class EquiSearch(Searcher):
    """Ranks by equi-joinability; ties by reverse coverage, rarity, name, then place.

    ``demote_generic`` ranks row numbers, years and flags below informative keys, except for a
    query that is itself such a key; ``heed_decisions`` ranks what people accepted first, and what
    they rejected last.
    """

    #: What hits say they were found by.
    found_by = EQUAL_CELLS

    def __init__(
        self,
        segments: Sequence[Segment],
        profile: str,
        key: bytes = b"",
        *,
        demote_generic: bool = False,
        heed_decisions: bool = False,
    ) -> None:
        self._segments = [segment for segment in segments if segment.values.columns]
        self._profile, self._key, self._demote = profile, key, demote_generic
        self._heed = heed_decisions

    def _ranking(self, watch: Stopwatch, query: Column, options: SearchOptions) -> EquiRanking:
        cells = SearchQuery(query, self._profile, self._key)
        if self._heed:
            cells.decided = options.decided(query)
        return self.rank(watch, cells, options)

    def rank(self, watch: Stopwatch, cells: SearchQuery, options: SearchOptions) -> EquiRanking:
        """Rank the columns that share a value with a query."""
        overlaps = list(self._overlaps(cells))
        demote = self._demote and cells.generic is Generic.NO
        watch.lap("encode")
        live = sum(segment.live_columns for segment in self._segments)
        rarity = Rarity(overlaps, len(cells), live)
        ranked = [self._ranked(overlap, cells, options, rarity, demote) for overlap in overlaps]
        best = merge_segments(ranked, options.columns)
        watch.lap("candidates")
        counts = [count for _, count in best]
        places = [place for place, _ in best]
        return EquiRanking(cells, places, found_by=self.found_by, overlaps=counts)

    def _overlaps(self, query: SearchQuery) -> Iterator[Overlap]:
        """Look the query up in each segment, and read its posting lists."""
        for segment in self._segments:
            if len(query.values_in(segment).known):
                yield Overlap(segment, query)

    def _ranked(
        self,
        overlap: Overlap,
        query: SearchQuery,
        options: SearchOptions,
        rarity: Rarity,
        demote: bool,
    ) -> RankedColumns:
        """Rank the columns of one segment."""
        segment, size = overlap.segment, len(query)
        names = segment.catalog.column_names
        demoted = np.asarray(segment.catalog.column_generic) if demote else None
        # What a person accepted may share few values, so none is left out for that.
        counted = replace(options, k=None) if query.decided else options
        found = overlap.candidates(counted, demoted)
        if options.threshold > 0:
            found = found.where(found.overlaps / size >= options.threshold)
        if options.columns == 0 or len(found.columns) == 0:
            return RankedColumns(segment, np.zeros(0, np.int32), np.zeros(0, np.int64), [])
        # The first keys packed into one number: generic or not, missing values, size.
        primary = (size - found.overlaps << 32) | segment.values.sizes(found.columns)
        if demoted is not None:
            primary |= (demoted[found.columns] != 0).astype(np.int64) << 62

        def by_name(rows: Int) -> Double:
            if not query.name:
                return np.zeros(len(rows))
            columns = found.columns[rows].tolist()
            return np.array([-name_similarity(query.name, names[column]) for column in columns])

        keys: list[Key] = [
            lambda rows: primary[rows],
            lambda rows: -rarity.of(overlap, found.columns[rows]),
            by_name,
        ]
        if query.decided:
            keys.insert(0, lambda rows: -decisions(query, segment, found.columns[rows]))
        order = segment.catalog.column_order[found.columns]
        # Columns of other segments have to be compared by every key.
        several = len(self._segments) > 1
        rows, known = best_rows(order, options.columns, keys, every=several)
        return RankedColumns(segment, found.columns[rows], found.overlaps[rows], known)


class SemanticSearch(Searcher):
    """Ranks by the share of the query's cells that a column holds, in any spelling.

    Join "any" counts each cell by the chance of a match, "semantic" as 1 from tau on. Similar
    values lead to candidates; those that promise most are measured on their stored cells. Of a
    large query, a sample leads to candidates, and numbers and dates match equal ones alone.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        profile: str,
        encoder: CellEncoder,
        join: str,
        tau: float | None = None,
        threads: int = 2,
    ) -> None:
        self._segments = [segment for segment in segments if segment.values.columns]
        self._profile, self._encoder, self._threads = profile, encoder, threads
        self._score = PairScore.of(join, encoder, tau)
        self._names = NameVectors(encoder)
        self._equal = EquiSearch(segments, profile, demote_generic=True)
        self._has_lists = any(one.cells and one.cells.has_lists for one in self._segments)

    def _ranking(self, watch: Stopwatch, query: Column, options: SearchOptions) -> Ranking:
        *_, last = self._rankings(watch, query, options)
        return last

    def _rankings(
        self, watch: Stopwatch, query: Column, options: SearchOptions
    ) -> Iterator[Ranking]:
        """Rank by equal cells first, where the caller wants that or may not get more."""
        cells = SearchQuery(query, self._profile, encoder=self._encoder)
        if self._score.join == "any":
            cells.decided = options.decided(query)
        watch.lap("encode")
        if len(cells) and (options.in_stages or options.deadline is not None):
            equal = self._equal.rank(watch, cells, options)
            equal.partial = _partial(0, len(cells))
            yield equal
            if options.is_late:
                return
        ranking = self._ranked(cells, options, complete=options.columns is None)
        few = options.columns is not None and len(ranking.places) < options.columns
        if few and self._has_lists and len(cells) <= _SAMPLE and not options.is_late:
            # Lists may miss what is far; then everything is compared.
            ranking = self._ranked(cells, options, complete=True)
        if self._score.join == "any" and options.programs and options.columns != 0:
            ranking = self._with_programs(cells, ranking, options)
        watch.lap("candidates")
        yield ranking

    def _with_programs(
        self, query: SearchQuery, ranking: SemanticRanking, options: SearchOptions
    ) -> SemanticRanking:
        """Put columns that match by a program among the others, by probability, then score."""
        facts, count = QueryFacts(query), len(ranking.places)

        def weighed(
            segment: Segment, column: int, share: float, reverse: float
        ) -> tuple[float, float]:
            """Return the probability of a column, and its score."""
            columns = np.array([column])
            names = self._names.similarity(query.name, segment, columns)
            shares = np.array([share]), np.array([reverse])
            chance = facts.probabilities(segment, columns, *shares, names)
            score = (share + NAME_WEIGHT * float(names[0])) / (1 + NAME_WEIGHT)
            return float(chance[0]), round(score, 5)

        def is_worth(segment: Segment, column: int) -> bool:
            """Say whether a column that matched throughout would be among the best."""
            if count == 0 or count != options.columns:
                return True
            size = int(segment.values.sizes(np.array([column]))[0])
            best = _rank_key(*weighed(segment, column, 1.0, min(1.0, len(query) / size)))
            (last,) = ranking.matches([count - 1])
            return best >= _rank_key(last.probability or 0.0, last.score)

        limits = options, self._score.tau
        found = columns_by_program(query, self._segments, *limits, is_worth)
        if not found:
            return ranking
        others = list(ranking.matches(range(count)))
        for one in found:
            weight = weighed(one.segment, one.column, one.joinability, one.semantic.reverse)
            one = replace(one, probability=weight[0], score=weight[1])
            place = (one.segment, one.column)
            same = [at for at, two in enumerate(others) if (two.segment, two.column) == place]
            if same and others[same[0]].joinability >= one.joinability:
                continue
            others = [two for at, two in enumerate(others) if at not in same]
            at = _rank_among(one, others)
            if not query.name:  # a column that holds what was typed in needs no program
                held = (n for n, two in enumerate(others, 1) if two.joinability >= one.joinability)
                at = max(at, *held, 0)
            others.insert(at, one)
        others = others[: options.columns]
        places = [(one.segment, one.column) for one in others]
        merged = SemanticRanking(query, places, lambda chosen: [others[at] for at in chosen])
        merged.partial, merged.is_by_chance = ranking.partial, True
        return merged

    def _ranked(
        self, query: SearchQuery, options: SearchOptions, *, complete: bool
    ) -> SemanticRanking:
        if len(query) == 0 or options.columns == 0 or not self._segments:
            return SemanticRanking(query, [], lambda chosen: [])
        near = [
            SimilarCells(*(segment, query, self._score, self._encoder), threads=self._threads)
            for segment in self._segments
        ]
        cells = sample = comparable(query)
        if len(cells) > _SAMPLE and not complete:
            sample = cells[np.linspace(0, len(cells) - 1, _SAMPLE).astype(np.int64)]
        demote = query.generic is Generic.NO
        effort = (None,) if complete else (PROBES, _MORE)[: 1 + self._has_lists]
        for probes in effort:
            looked_up = _look_up(near, query, sample, options, probes)
            if len(looked_up) < len(sample):  # time is up: what was looked up is measured
                cells = looked_up
            scale = len(cells) / max(1, len(looked_up))
            candidates = _by_promise(near, options, len(query), scale, demote)
            if len(candidates[1]) >= _SPARSE or len(sample) > _BLOCK or options.is_late:
                break
        facts = QueryFacts(query)
        if options.columns is not None:
            most = max(_RANKED, _TIMES * options.columns)
            if self._score.join == "any":
                candidates = _by_chance(facts, near, candidates, most)
            if len(cells) <= _SAMPLE:
                candidates = self._by_known_values(facts, near, candidates, most, demote)
        ranking, compared = self._measured(facts, near, candidates, cells, options, demote)
        if len(looked_up) < len(sample) or compared < len(cells):
            ranking.partial = _partial(compared, len(query))
        return ranking

    def _by_known_values(
        self,
        facts: QueryFacts,
        near: Sequence[SimilarCells],
        candidates: tuple[Int, Int],
        most: int,
        demote: bool,
    ) -> tuple[Int, Int]:
        """Rank the most promising columns by the values that were found near the query's.

        Lists miss few values, so the order is nearly final and few columns have to be measured.
        """
        (which, columns), query = candidates, facts.query
        scored, places = [], []
        for number, one in enumerate(near):
            rows = np.flatnonzero(which[:most] == number)
            rows = rows[np.argsort(columns[rows])]
            mine, matches = columns[rows], one.known_matches(columns[rows])
            names = self._names.similarity(query.name, one.segment, mine)
            some = ColumnScores.of(one.segment, mine, matches, self._score, names)
            # In the end, the names of tables decide between equals.
            last = one.segment.catalog.column_order[mine]
            scored.append(np.vstack([rank_keys(query, some, facts, demote=demote), last]))
            places.append(rows)
        order = np.concatenate(places)[np.lexsort(np.hstack(scored)[::-1])]
        order = np.append(order, np.arange(len(order), len(columns)))
        return which[order], columns[order]

    def _measured(
        self,
        facts: QueryFacts,
        near: Sequence[SimilarCells],
        candidates: tuple[Int, Int],
        cells: Int,
        options: SearchOptions,
        demote: bool,
    ) -> tuple[SemanticRanking, int]:
        """Compare cells with the most promising columns; return how many could be in time."""
        (which, columns), query = candidates, facts.query
        k, tau, compared = options.columns, self._score.tau, len(cells)
        most = len(columns) if k is None else max(_MEASURED, _TIMES * k)
        if k is not None and len(cells) > _SAMPLE:
            sizes = np.zeros(len(columns), np.int64)
            for number, one in enumerate(near):
                sizes[which == number] = one.segment.values.sizes(columns[which == number])
            affordable = int(np.searchsorted(np.cumsum(sizes), _PAIRS // len(cells)))
            most = max(k, min(most, affordable))
        # They come roughly in the final order, so it is enough to go on while that finds better.
        every = most if k is None else max(_ROUND, k)
        # The second round is measured with the first: a second is needed to see that it changes
        # nothing, and what two rounds cost is mostly the same for both.
        done, until = 0, min(2 * every, most)
        scored: list[ColumnScores] = []
        while True:
            for number, one in enumerate(near):
                mine = np.sort(columns[done:until][which[done:until] == number])
                matches, count = one.matches_in(mine, cells, lambda: options.is_late)
                compared = min(compared, count)
                names = self._names.similarity(query.name, one.segment, mine)
                scored.append(ColumnScores.of(one.segment, mine, matches, self._score, names))
            ranking = rank_by_meaning(
                query, scored, k, options.threshold, tau, demote=demote, facts=facts
            )
            latest = zip(which[until - every : until].tolist(),
                         columns[until - every : until].tolist(), strict=True)  # fmt: skip
            found = {(near[number].segment, column) for number, column in latest}
            is_full = len(ranking.places) >= (k or 0)
            is_settled = until >= most or found.isdisjoint(ranking.places) or options.is_late
            if until >= len(columns) or (is_full and is_settled):
                return ranking, compared
            done = until
            if until < most:
                until = min(until + every, most)
                continue
            # Columns may promise much and hold no match; then more of them are measured.
            until = most = most * _GROWTH
            if len(cells) > _SAMPLE or options.is_late:
                cells = cells[:0]  # the others by equal cells alone


def _rank_among(one: ColumnMatch, others: Sequence[ColumnMatch]) -> int:
    """Return where a column belongs among ranked ones: before the first that is less likely."""
    keys = [_rank_key(two.probability or 0.0, two.score) for two in (one, *others)]
    return next((at for at, key in enumerate(keys[1:]) if key < keys[0]), len(others))


def _rank_key(probability: float, score: float) -> tuple[float, float]:
    return round(probability, CHANCE_DIGITS), score


def comparable(query: SearchQuery) -> Int:
    """Return the cells to compare by meaning: of a large query, those that are words.

    Vectors tell numbers and dates apart and find no others similar: only other punctuation
    around the same digits would be found.
    """
    cells = np.arange(len(query))
    if len(query) <= _SAMPLE:
        return cells
    kinds = np.asarray(cell_types(text_array(query.cells.values)))
    return np.flatnonzero(kinds == CellType.TEXT)


def _look_up(
    near: Sequence[SimilarCells],
    query: SearchQuery,
    cells: Int,
    options: SearchOptions,
    probes: int | None,
) -> Int:
    """Look cells up in all segments, block by block; return those that were in time."""
    size = _SCANNED if probes is None else _BLOCK
    for one in near:
        one.forget()
    for start in range(0, len(cells), _ENCODED):
        some = cells[start : start + _ENCODED]
        # Cells without a vector have no similar values and take no place in a block.
        places = np.flatnonzero(query.encode(some).any(axis=1))
        done = start
        for block in np.split(some, places[size::size]):
            for one in near:
                one.look_up(block, probes)
            done += len(block)
            if options.is_late:
                return cells[:done]
    return cells


def _partial(done: int, total: int) -> Partial:
    text = f"similar values of {done:,} of {total:,} were looked up"
    return Partial(text, done, total)


def _by_promise(
    near: Sequence[SimilarCells], options: SearchOptions, size: int, scale: float, demote: bool
) -> tuple[Int, Int]:
    """Return the columns worth measuring, best first: which segment each is of, and its number."""
    sums = [cells.column_sums(options.exclude, scale) for cells in near]
    for one, of in zip(near, sums, strict=True):
        one.promised = of
    found = [np.flatnonzero(of > 0) for of in sums]
    scores = np.concatenate([of[columns] for of, columns in zip(sums, found, strict=True)])
    which = np.repeat(np.arange(len(near)), [len(columns) for columns in found])
    every = np.concatenate(found)
    keys = scores.astype(np.float64)
    if demote:
        generic = [one.segment.catalog.column_generic for one in near]
        marks = [of[c] != 0 for of, c in zip(generic, found, strict=True)]
        keys -= (size + 1) * np.concatenate(marks)
    # Of columns that hold as much, those that hold little else can be among the best.
    close = np.arange(len(keys))
    if len(keys) > _WEIGHED:
        least = np.partition(keys, -_WEIGHED)[-_WEIGHED]
        close = np.flatnonzero(keys + _TIE * scores >= least)
    for number, one in enumerate(near):
        mine = close[which[close] == number]
        keys[mine] += scores[mine] * _TIE / np.maximum(1, one.segment.values.sizes(every[mine]))
    reach = np.arange(len(scores))
    if scale == 1:  # a sample only estimates the scores
        # A little less than the threshold, since these sums are in single precision.
        reach = np.flatnonzero(scores >= options.threshold * size * (1 - 1e-6))
    order = reach[_descending(keys[reach], _WEIGHED)]
    return which[order], every[order]


def _descending(keys: Double, most: int) -> Int:
    """Order keys, largest first; only of the first ``most`` do equal ones keep their order."""
    if len(keys) <= most:
        return np.argsort(-keys, kind="stable")
    least = np.partition(keys, -most)[-most]
    best, rest = np.flatnonzero(keys >= least), np.flatnonzero(keys < least)
    best = best[np.argsort(-keys[best], kind="stable")]
    # The others are rarely looked at: roughly in order will do, by 16 bits, which sort fast.
    below = (least - keys[rest]) / max(1e-9, float(least - keys.min()))
    order = np.argsort((below * 0xFFFF).astype(np.uint16), kind="stable")
    return np.concatenate([best, rest[order]])


def _by_chance(
    facts: QueryFacts,
    near: Sequence[SimilarCells],
    candidates: tuple[Int, Int],
    most: int,
) -> tuple[Int, Int]:
    """Put the most promising columns in the order of their probability, as far as it is known.

    Numbers and years are found in more columns than can be measured; names tell which to measure.
    """
    which, columns = candidates
    if len(columns) <= most:
        return candidates
    which, columns = _accepted_first(facts.query, near, candidates)
    some = min(len(columns), _WEIGHED)
    chances = np.zeros(some)
    first = min(some, most * 3 // 2)
    for start, stop in ((0, first), (first, some)):
        for number, one in enumerate(near):
            rows = start + np.flatnonzero(which[start:stop] == number)
            mine = columns[rows]
            shared = one.promised[mine].astype(np.float64)
            reverse = np.minimum(1, shared / np.maximum(1, one.segment.values.sizes(mine)))
            shares = np.minimum(1, shared / len(facts.query))
            nothing = np.zeros(len(rows))
            chances[rows] = facts.probabilities(one.segment, mine, shares, reverse, nothing)
        chances = np.round(chances, _DIGITS)
        # Of most queries few columns have any chance; then what they promise decides.
        if not chances[most:first].any():
            break
    order = np.argsort(-chances, kind="stable")
    order = np.append(order, np.arange(some, len(columns)))
    return which[order], columns[order]


def _accepted_first(
    query: SearchQuery, near: Sequence[SimilarCells], candidates: tuple[Int, Int]
) -> tuple[Int, Int]:
    """Put columns that a person accepted before the others, however little they promise."""
    which, columns = candidates
    last = np.ones(len(columns), bool)
    for (table, names), accepted in query.decided.items():
        for number, one in enumerate(near):
            if accepted and len(names) == 1 and one.segment.find_table(table) is not None:
                with suppress(UnknownName):
                    column = one.segment.catalog.find_column(table, names[0])
                    last &= (which != number) | (columns != column)
    order = np.argsort(last, kind="stable")
    return which[order], columns[order]


class NameVectors:
    """The vectors of column names, kept: many columns of a lake share a few names."""

    def __init__(self, encoder: CellEncoder) -> None:
        self._encoder, self._lock = encoder, Lock()
        #: The row of each name among the vectors.
        self._rows: dict[str, int] = {}
        self._vectors: Float = np.zeros((0, encoder.dimension), np.float32)

    def similarity(self, name: str, segment: Segment, columns: Int) -> Double:
        """Return the cosine of a name with those of some columns, 0 where it is below 0."""
        different, which = TargetFacts.of(segment).names(segment, columns)
        vectors = self._known([name, *different]).astype(np.float64)
        cosines: Double = vectors[1:] @ vectors[0]
        return np.maximum(0, cosines)[which]

    def _known(self, names: Sequence[str]) -> Float:
        """Return the vectors of names; each is encoded once."""
        with self._lock:
            if len(self._rows) > _NAMES:
                self._rows = {}
            if new := [one for one in dict.fromkeys(names) if one not in self._rows]:
                first, last = len(self._rows), len(self._rows) + len(new)
                made = self._encoder.encode(new)
                if last > len(self._vectors):
                    self._vectors = np.resize(self._vectors, (2 * last, made.shape[1]))
                self._vectors[first:last] = made
                self._rows |= zip(new, range(first, last), strict=True)
            rows = list(map(self._rows.__getitem__, names))
            return self._vectors[rows]


def explain_pair(
    context: SearchContext,
    column: Column,
    target: Place,
    join: str,
    tau: float | None,
    show: int | None,
) -> Hit:
    """Measure how a query joins with one column as a search would, whether or not it is a hit."""
    segment, number = target
    if _by_equality(context, join):
        query = SearchQuery(column, context.profile, context.key)
        _check_not_empty(query)
        (hit,) = equi_hits(query, [target], show)
        return hit if hit.equi.matched else replace(hit, found_by=())
    encoder, columns = context.cell_encoder(), np.array([number])
    query = SearchQuery(column, context.profile, encoder=encoder)
    _check_not_empty(query)
    score = PairScore.of(join, encoder, tau)
    similar = SimilarCells(segment, query, score, encoder)
    matches, _ = similar.matches_in(columns, comparable(query))
    names = NameVectors(encoder).similarity(column.name, segment, columns)
    scores = ColumnScores.of(segment, columns, matches, score, names)
    chance = QueryFacts(query).probabilities(
        segment, columns, scores.joinabilities(len(query)), scores.reverse, scores.names
    )
    match = replace(scores.match(0, len(query), score.tau), probability=float(chance[0]))
    (hit,) = semantic_hits(query, [match], show)
    return hit


def _check_not_empty(query: SearchQuery) -> None:
    if len(query) == 0:
        raise DeepJoinError("The query column has no values: every cell is missing or blank.")
