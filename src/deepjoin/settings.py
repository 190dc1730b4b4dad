"""Settings objects: what is indexed and encoded, and how builds, searches and joins run.

`Settings` and `Vectors` are stored with the index and repeated by the next build; the others
belong to one call.
"""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar, cast

from deepjoin.errors import DeepJoinError, unknown_name
from deepjoin.normalise.canonical import PROFILES

if TYPE_CHECKING:
    from deepjoin.model import Column, Results

#: Title and context of a table; None keeps what the source says.
TableWords = tuple[str | None, str | None]
#: What can become of the cells of several matching rows.
AGGREGATES = ("first", "count", "sum", "mean", "min", "max", "list")
#: What several columns of a query can be; see `SearchSettings.keys`.
KEYS = ("auto", "together", "each")


@dataclass(frozen=True)
class Settings:
    """What becomes a column of the lake.

    >>> Settings(min_distinct=1).profile
    'default'
    """

    profile: str = "default"
    #: Columns with fewer distinct values are left out, as in the paper's corpora.
    min_distinct: int = 5
    #: Longer cells cannot be keys: they are not indexed, and the report counts them.
    max_cell: int = 4096
    #: Columns whose distinct values are longer than this on average are free text.
    max_mean_length: int = 128
    #: Column names never indexed; shell patterns, case ignored.
    deny_columns: tuple[str, ...] = ()
    #: File patterns relative to the source folder.
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    #: "auto" reads a folder of part files as one table where it is recognised; or "never".
    parts: str = "auto"
    #: Folders whose files are always one table; patterns relative to the source folder.
    one_table: tuple[str, ...] = ()
    #: Read at most this many rows of each database table; 0 for all.
    sample_rows: int = 0
    #: SQL whose answer changes whenever the database table `{table}` changes.
    version_query: str = ""
    #: Store salted hashes instead of values and cells; the first build makes the salt.
    hash_only: bool = False
    salt: str = ""

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise DeepJoinError(
                f"Unknown profile '{self.profile}'. Profiles: {', '.join(PROFILES)}."
            )
        if self.parts not in ("auto", "never"):
            raise DeepJoinError(f"`parts` is '{self.parts}'; it must be auto or never.")
        if self.sample_rows < 0:
            raise DeepJoinError(
                f"`sample_rows` is {self.sample_rows}; it must be at least 0 (0 reads all rows)."
            )
        if self.min_distinct < 1:
            raise DeepJoinError(f"`min_distinct` is {self.min_distinct}; it must be at least 1.")


#: What is indexed unless the user says otherwise.
DEFAULTS = Settings()
#: Fields of `Vectors` that say how columns become texts.
TEXT_FIELDS = ("pattern", "tokens", "sampling", "unit")


@dataclass(frozen=True)
class Vectors:
    """What is encoded beside the values; changing it reads no table again.

    >>> Vectors(encoder="default").cells
    'default'
    """

    #: Encoder of columns, for the methods that compare one vector a column: "default", "none", a
    #: model folder or the name of a model. The default search does not read them.
    encoder: str = "none"
    #: Encoder of values: "default", "none", a folder of a table, or fastText vectors.
    cells: str = "default"
    #: Dimension of each column's sketch; 0 for no sketches.
    sketch: int = 0
    #: How column vectors are stored and searched; "auto" chooses by their number.
    index: str = "auto"
    #: Similarity of column vectors: "cosine" or "euclidean".
    metric: str = "cosine"
    #: How columns become texts, where it differs from what the encoder was tuned for: the paper's
    #: pattern, most tokens, how cells of tall columns are chosen ("frequency", "random",
    #: "truncate", "tf-idf", "bm25"), and what statistics count ("characters" or "words").
    pattern: str = ""
    tokens: int = 0
    sampling: str = ""
    unit: str = ""
    #: Digests of the two encoders, whatever they are called: all segments must have the same.
    encoder_digest: str = ""
    cells_digest: str = ""

    def __post_init__(self) -> None:
        if self.sketch < 0:
            raise DeepJoinError(
                f"`sketch` is {self.sketch}; it must be a dimension, or 0 for no sketches."
            )

    @property
    def text(self) -> tuple[tuple[str, str | int], ...]:
        """How columns become texts, where it was chosen.

        >>> Vectors(tokens=510, sampling="random").text
        (('tokens', 510), ('sampling', 'random'))
        """
        given = ((name, getattr(self, name)) for name in TEXT_FIELDS)
        return tuple((name, value) for name, value in given if value)


#: What an index of hashes encodes, or one of an early version.
NO_VECTORS = Vectors(cells="none")


@dataclass(frozen=True)
class BuildSettings:
    """How one build runs; the index is the same whatever these are, apart from titles.

    >>> BuildSettings(rebuild=True).engine
    'local'
    """

    #: Bytes that the build may hold; None for 2 GiB. Mapped files are not counted, the system can
    #: reclaim them. A build needs about 600 MiB.
    memory: int | None = None
    #: Chunks of cells processed at a time; None for one a processor.
    threads: int | None = None
    #: Where encoders on torch run, and where the returned lake searches; see `deepjoin.open`.
    device: str | None = None
    #: "local" for this process, or "ray" for the workers of a Ray cluster, which must see the
    #: same files.
    engine: str | None = "local"
    #: Address of the cluster; None for RAY_ADDRESS, or one running on this machine. Without any,
    #: one is started for the length of the build.
    ray_address: str | None = None
    #: Title and context to use for tables, by name, instead of file and folder names.
    titles: Mapping[str, TableWords] = field(default_factory=dict)
    #: Read everything again, changed or not.
    rebuild: bool = False


@dataclass(frozen=True)
class SearchSettings:
    """How hits are matched and listed; the parameters of `Lake.search` say what is searched.

    >>> SearchSettings(tau=0.8).matches
    20
    """

    #: Least cosine at which two values match; None for the cell encoder's own.
    tau: float | None = None
    #: "tables" for one hit a table, with its other matching columns in ``hit.also``.
    group: str | None = None
    #: How several columns without ``on`` are searched: "together" as one key, or "each" on its
    #: own; "auto" takes a frame of two to four columns as one key, and each column of a wider one.
    keys: str = "auto"
    #: Other columns of the table that a query column is from, for hits that would multiply rows:
    #: ``hit.better`` says which of them make the key unique. A frame with ``on`` needs none.
    beside: Sequence[Column] = ()
    #: How many matched and unmatched cells to list per hit; None for all.
    matches: int | None = 20
    #: Seconds after which the answer so far is returned; ``results.partial`` says what is missing.
    time_limit: float | None = None
    #: Called with each answer that is not complete as soon as it is known: first with the hits
    #: by equal values, then as values, or columns of a table, have been looked up by meaning.
    on_partial: Callable[[Results], None] | None = None
    #: Whether joins of kind "any" also find columns that match by a program.
    programs: bool = True
    #: Nearest columns that method deepjoin-exact verifies; more find more and take longer.
    verified: int = 500
    #: Least probability, from 0 to 1: hits below it come apart, in ``results.unlikely``; 0 lists
    #: all. The default is for joins of kind "any" and a column with a name, if there are hits
    #: enough to fill the list: 0.05, or 0.15 for numbers, dates and codes of digits; twice that
    #: for hits that cover less than half of either column.
    least: float | None = None

    def __post_init__(self) -> None:
        check_tau(self.tau)
        if self.least is not None and not 0 <= self.least <= 1:
            raise DeepJoinError(f"`least` is {self.least}; it must be between 0 and 1.")
        if self.verified < 1:
            raise DeepJoinError(f"`verified` is {self.verified}; it must be at least 1.")
        if self.time_limit is not None and not self.time_limit >= 0:
            raise DeepJoinError(
                f"`time_limit` is {self.time_limit}; it must be a number of seconds >= 0."
            )
        if self.keys not in KEYS:
            raise unknown_name("choice of keys", str(self.keys), "deepjoin", KEYS)
        if self.group not in (None, "tables"):
            raise unknown_name("grouping", str(self.group), "deepjoin", ["tables"])


@dataclass(frozen=True)
class JoinSettings:
    """What a join brings, how its values are matched, and what DuckDB may use.

    >>> JoinSettings(columns=["capital"]).matching
    'best'
    """

    #: Least cosine of similar values that match; None for the hit's, or the encoder's own.
    tau: float | None = None
    #: Of several similar values: the "best", the best that no other value has a better claim to
    #: ("one-to-one"), or "all".
    matching: str = "best"
    #: Least estimated precision of all pairs of values, above 0 and up to 1: similar values are
    #: taken, likeliest first, as long as it is reached; None for those with a chance of .5.
    precision: float | None = None
    #: What people decided about pairs of values, as in `deepjoin.match`: (yours, theirs, True or
    #: False), or a CSV file with the columns query, target and decision.
    decisions: str | os.PathLike[str] | Iterable[tuple[str, str, bool]] | None = None
    #: Memory that DuckDB may use before it writes to disk, e.g. "4GB"; None for about a tenth
    #: of the machine's, but at least 2 GiB if it has as much.
    memory_limit: str | None = None
    #: Columns of the right table to bring, in this order; None for all. Its key is then left out
    #: if every match spells it as the left table does.
    columns: Sequence[str] | None = None
    #: Makes one row of several matching ones: "first", "count", "sum", "mean", "min", "max" or
    #: "list" (the distinct values), for all columns or by name: {"price": "mean", "*": "list"}.
    #: By default numbers have their mean and other columns a list.
    aggregate: str | Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            raise DeepJoinError(
                f"`columns` is '{self.columns}'; it must be a list of names: ['{self.columns}']."
            )
        if not isinstance(self.aggregate, str | Mapping | None):
            raise DeepJoinError(
                f"`aggregate` is {self.aggregate!r}; it must be the name of an aggregate, or a "
                'mapping from columns to such names: {"price": "mean"}.'
            )
        for name in self.aggregates.values():
            if name not in AGGREGATES:
                raise unknown_name("aggregate", str(name), "a join", AGGREGATES)
        if self.precision is not None and not (
            isinstance(self.precision, int | float) and 0 < self.precision <= 1
        ):
            raise DeepJoinError(
                f"`precision` is {self.precision!r}; it must be above 0 and at most 1."
            )

    @property
    def aggregates(self) -> Mapping[str, str]:
        """The aggregates by column name; "*" is for all other columns."""
        given = self.aggregate
        return {"*": given} if isinstance(given, str) else given or {}


@dataclass(frozen=True)
class EnrichSettings:
    """Bounds of an enrichment.

    >>> EnrichSettings(seconds=30).tables
    40
    """

    #: Most tables to join, and most hits of each key column to look at.
    tables: int = 40
    #: Most columns to add.
    columns: int = 100
    #: Seconds for joining, at most half of them, and measuring; one fold is measured in any case.
    seconds: float = 60.0
    #: Least chance, from 0 to 1, that a join makes sense for it to be tried.
    least: float = 0.3
    #: Rows of your table on which columns are chosen and the gain is measured.
    sample: int = 20_000
    #: Makes everything that is drawn at random repeatable.
    seed: int = 0
    #: The keys, if you know them: "id" joins columns of this name alone, "a=b" a column a of a
    #: table with the column b of the next.
    keys: Sequence[str] = ()
    #: Also use columns that give the target away.
    leaks: bool = False
    #: A column of yours with dates or numbers: of rows that a key meets, the latest that is not
    #: later is taken, and tables without a key are joined on it alone.
    as_of: str = ""
    #: The same for tables with two columns that bound a range, such as valid_from and valid_to.
    ranges: str = ""

    def __post_init__(self) -> None:
        def check(name: str, is_right: bool, allowed: str) -> None:
            if not is_right:
                raise DeepJoinError(f"`{name}` is {getattr(self, name)!r}; it must be {allowed}.")

        for name in ("tables", "columns", "sample"):
            check(name, _is_number(getattr(self, name), Integral, 1), "a whole number >= 1")
        check("seconds", _is_number(self.seconds, Real, 0), "a number >= 0")
        check("least", _is_number(self.least, Real, 0, 1), "a number between 0 and 1")
        most = (1 << 32) - 1
        check("seed", _is_number(self.seed, Integral, 0, most), f"a whole number from 0 to {most}")
        is_list = isinstance(self.keys, list | tuple)
        check("keys", is_list, 'a list of names, such as ["id", "town=city"]')
        for one in self.keys:
            if not isinstance(one, str) or not one.partition("=")[0].strip():
                raise DeepJoinError(
                    f"`keys` has {one!r}; a key is the name of a column, such as 'id', or a pair, "
                    "such as 'town=city'."
                )
        object.__setattr__(self, "keys", tuple(self.keys))
        check("leaks", isinstance(self.leaks, bool), "True or False")
        for name in ("as_of", "ranges"):
            check(name, isinstance(getattr(self, name), str), 'the name of a column, or ""')
        if self.as_of and self.ranges:
            raise DeepJoinError("`as_of` and `ranges` cannot be combined. Leave one out.")


@dataclass(frozen=True)
class PublishSettings:
    """How published column vectors are indexed and searched in PostgreSQL.

    >>> PublishSettings(index="codes").effort is None
    True
    """

    #: "hnsw" for a graph of vectors, "codes" to compare bits in their place, "exact" to compare
    #: all of them; "auto" chooses by the space and the number of vectors.
    index: str = "auto"
    #: Candidates that a search keeps, of a graph up to 1,000; more find better and take longer.
    effort: int | None = None
    #: The most bytes that a server may use to build a graph.
    memory: int = 1 << 30


def check_tau(tau: object) -> None:
    """Refuse a threshold that is not a cosine of similar values."""
    # numpy's floats are floats or have __float__; text and booleans are mistakes.
    number = tau if isinstance(tau, int | float) else getattr(tau, "__float__", lambda: 0.0)()
    if tau is not None and not 0 < number <= 1:
        raise DeepJoinError(f"`tau` is {tau!r}; it must be a cosine above 0 and at most 1.")


def _is_number(
    given: object, kind: type[Integral] | type[Real], least: float, most: float = float("inf")
) -> bool:
    """Check for a number in a range; True and False are none."""
    is_right = isinstance(given, kind) and not isinstance(given, bool)
    return is_right and least <= cast(float, given) <= most


def fields_of(kind: type, given: object) -> dict[str, Any]:
    """Return what options, or a request, have under the names of the fields of a class.

    >>> fields_of(JoinSettings, SearchSettings(tau=0.8))
    {'tau': 0.8}
    """
    names = (one.name for one in fields(kind) if hasattr(given, one.name))
    return {name: getattr(given, name) for name in names}


Chosen = TypeVar("Chosen", SearchSettings, JoinSettings, PublishSettings)


def with_deprecated(
    function: str,
    settings: Chosen | None,
    kind: type[Chosen],
    given: Mapping[str, Any],
    current: Collection[str] = (),
) -> Chosen:
    """Apply keywords that moved into the settings object of a public function.

    ``current`` are fields that may be given as keywords from now on, too.

    >>> with_deprecated("search", None, SearchSettings, {}).matches
    20
    """
    if not given:
        return settings or kind()
    kept = {name: value for name, value in given.items() if name in current}
    old = {name: value for name, value in given.items() if name not in current}
    moved = deprecated_keywords(function, old, stacklevel=4, settings=kind)
    return replace(settings or kind(), **moved["settings"], **kept)


def deprecated_keywords(
    function: str,
    given: Mapping[str, Any],
    renamed: Mapping[str, str] | None = None,
    *,
    stacklevel: int = 3,
    **homes: type,
) -> dict[str, dict[str, Any]]:
    """Sort keywords that moved into settings objects by the parameter that has them now.

    ``homes`` maps each parameter to its dataclass; ``renamed`` maps keywords to fields that
    have another name. Warns once, or refuses keywords that never existed.

    >>> deprecated_keywords("search", {}, settings=SearchSettings)
    {'settings': {}}
    >>> deprecated_keywords("search", {"taw": 0.9}, settings=SearchSettings)
    Traceback (most recent call last):
    ...
    TypeError: search() got an unexpected keyword argument 'taw'. \
Did you mean settings=SearchSettings(tau=...)?
    """
    moved: dict[str, dict[str, Any]] = {home: {} for home in homes}
    places = {
        one.name: (home, one.name, f"{home}={kind.__name__}({one.name}=...)")
        for home, kind in homes.items()
        for one in fields(kind)
    }
    places |= {old: places[new] for old, new in (renamed or {}).items()}
    for keyword, value in given.items():
        if keyword not in places:
            near = difflib.get_close_matches(keyword, places, n=1)
            hint = f". Did you mean {places[near[0]][2]}?" if near else ""
            raise TypeError(f"{function}() got an unexpected keyword argument '{keyword}'{hint}")
        home, name, _ = places[keyword]
        moved[home][name] = value
    if given:
        use = ", ".join(dict.fromkeys(places[keyword][2] for keyword in given))
        warnings.warn(
            f"{function}() takes {', '.join(given)} for one more release; use {use}",
            DeprecationWarning,
            stacklevel=stacklevel,
        )
    return moved
