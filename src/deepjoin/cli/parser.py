"""Every command and option, with the help that teaches them.

Commands load their work when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from deepjoin._version import __version__
from deepjoin.cli.values import depths, share, size, target, whole

Commands: TypeAlias = "argparse._SubParsersAction[_Intermixed]"

_ABOUT = """\
Find the tables of a data lake you can join with a column of yours, see why, and join them.

  deepjoin demo                                    a lake to play with, in a minute
  deepjoin index data/                             index a folder of tables
  deepjoin search data/ orders.csv -c customer     who has my customers?
  deepjoin join data/ orders.csv -c customer --with crm/clients.csv:name -o enriched.parquet
"""

_CONFIGURED = """\
Options used again and again can be kept in a file deepjoin.toml, in this folder or above it:
a table for each command, as in [index] source = "data/", and [defaults] index = "data/" so
that INDEX can be left out. The command line goes before the file.
"""


class _Intermixed(argparse.ArgumentParser):
    """Takes arguments after options too: ``search INDEX -c COLUMN FILE``."""

    _is_mixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse options first, then arguments, wherever they stand."""
        if self._is_mixing:
            return super().parse_known_args(args, namespace)
        self._is_mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_mixing = False


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    parser = argparse.ArgumentParser(
        "deepjoin",
        description=_ABOUT,
        epilog=_CONFIGURED,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"deepjoin {__version__}")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="options from FILE; default: $DEEPJOIN_CONFIG, or the nearest deepjoin.toml",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Intermixed)
    making = (_index, _add, _remove, _compact, _check)
    for add in (*making, _search, _join, _info, _methods, _evaluate, _demo):
        add(commands)
    return parser


def _command(
    commands: Commands, name: str, summary: str, examples: str = ""
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=_loaded(name))
    return parser


def _loaded(name: str) -> Callable[[argparse.Namespace], int | None]:
    def run(options: argparse.Namespace) -> int | None:
        work: Callable[[argparse.Namespace], int | None]
        work = import_module(f"deepjoin.cli.{name}").run
        return work(options)

    return run


def _index_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "index",
        metavar="INDEX",
        help="an index folder, or a folder of tables (indexed on first use)",
    )


def _format_argument(parser: argparse.ArgumentParser, *more: str) -> None:
    parser.add_argument(
        "--format", choices=("table", "json", *more), default="table", help="form of the result"
    )


def _index(commands: Commands) -> None:
    parser = _command(
        commands,
        "index",
        "index folders, files, databases or buckets; again, only what changed",
        "examples:\n"
        "  deepjoin index data/\n"
        "  deepjoin index 'data/**/*.csv' -o my.index --exclude 'tmp/*'\n"
        "  deepjoin index postgresql://me@db/shop --include 'sales.*' -o shop.index\n"
        "  deepjoin index s3://bucket/tables -o s3://bucket/index\n"
        "  deepjoin index my.index               read what changed in the sources it has\n"
        "  deepjoin index data/ --dry-run        how many files, how long, how much disk\n\n"
        "Indexing again repeats the options of the first time, except those given anew.",
    )
    parser.add_argument("source", metavar="SOURCE", nargs="+", help="folder, file, 'glob' or URL")
    parser.add_argument("-o", "--out", metavar="INDEX", help="default: SOURCE/.deepjoin")
    parser.add_argument(
        "--profile",
        choices=("default", "basic"),
        help="how cells compare: default (case, white space, Unicode forms, 7 = 7.0, ISO dates) "
        "or basic (case and outer white space only)",
    )
    parser.add_argument("--include", metavar="GLOB", action="append", help="only these files")
    parser.add_argument("--exclude", metavar="GLOB", action="append", help="not these files")
    parser.add_argument(
        "--parts",
        choices=("auto", "never"),
        help="whether folders of part files and hive layouts count as one table (default auto)",
    )
    parser.add_argument(
        "--one-table",
        metavar="GLOB",
        action="append",
        help="folders whose files are one table, recognised or not",
    )
    parser.add_argument(
        "--sample-rows",
        metavar="N",
        type=whole(0),
        help="read only the first N rows of each database table (0: all)",
    )
    parser.add_argument(
        "--version-query",
        metavar="SQL",
        help="tells whether a database table has changed: 'SELECT max(changed_at) FROM {table}'",
    )
    parser.add_argument(
        "--hash-only",
        action="store_const",
        const=True,
        help="store salted hashes in place of values",
    )
    parser.add_argument(
        "--deny-column",
        metavar="NAME",
        action="append",
        help="never index it (pattern)",
    )
    parser.add_argument(
        "--min-distinct",
        metavar="N",
        type=whole(1),
        help="leave out columns with fewer distinct values (default 5)",
    )
    parser.add_argument(
        "--titles",
        metavar="CSV",
        help="a file with the columns table, title, context, to use instead of file names",
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        type=size,
        default="1G",
        help="cells held in memory before they go to disk, such as 500M or 2G (default 1G)",
    )
    parser.add_argument(
        "--threads", metavar="N", type=whole(1), help="default: one for each processor"
    )
    parser.add_argument(
        "--encoder",
        metavar="NAME|DIR|none",
        help="what gives each column a vector: default, a model folder, the name of a model, or "
        "none; only the methods that say so in `deepjoin methods` need it",
    )
    parser.add_argument(
        "--cells",
        metavar="NAME|PATH|none",
        help="what gives each value a vector, for semantic joins: default, a folder made by "
        "python -m deepjoin.cells.make, fastText vectors (.vec, .bin), or none",
    )
    parser.add_argument(
        "--sketch",
        metavar="N",
        type=whole(0),
        help="numbers in a column's sketch, for the sketch methods; default 0: none",
    )
    parser.add_argument(
        "--rebuild", action="store_true", help="index again even if no file has changed"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would happen, write nothing"
    )
    _format_argument(parser)


def _add(commands: Commands) -> None:
    parser = _command(
        commands,
        "add",
        "index more tables into a lake",
        "examples:\n"
        "  deepjoin add my.index new/orders.csv\n"
        "  deepjoin add my.index postgresql://me@db/shop\n\n"
        "Tables that came from the same files are replaced. `deepjoin index` looks after what "
        "was added as well.",
    )
    _index_argument(parser)
    parser.add_argument(
        "source", metavar="SOURCE", nargs="+", help="as for deepjoin index; outside or inside it"
    )
    _format_argument(parser)


def _remove(commands: Commands) -> None:
    parser = _command(
        commands,
        "remove",
        "take tables out of a lake; their files stay",
        "examples:\n"
        "  deepjoin remove my.index geo/old.csv\n"
        "  deepjoin remove my.index 'tmp/*'\n\n"
        "`deepjoin index` does not bring them back; `deepjoin add` does.",
    )
    _index_argument(parser)
    parser.add_argument("tables", metavar="TABLE", nargs="+", help="a name or a 'pattern'")
    _format_argument(parser)


def _compact(commands: Commands) -> None:
    parser = _command(
        commands, "compact", "merge what many changes have left into one segment, for good"
    )
    _index_argument(parser)


def _search(commands: Commands) -> None:
    parser = _command(
        commands,
        "search",
        "find the columns that join with a column of yours",
        "examples:\n"
        "  deepjoin search data/ orders.csv -c customer\n"
        "  deepjoin search data/ orders.csv               every column; the best key comes first\n"
        "  deepjoin search data/ geo/cities.csv -c city   a table of the lake itself\n"
        "  deepjoin search data/ --values 'Oslo,Lima,Rome'\n"
        "  cut -f1 names.tsv | deepjoin search data/ -    values from stdin, one a line",
    )
    _index_argument(parser)
    parser.add_argument("query", metavar="FILE|-|TABLE", nargs="?", help="where your column is")
    parser.add_argument("-c", "--column", metavar="COLUMN", help="default: try every column")
    parser.add_argument("--values", metavar="a,b,c", help="search for these values instead")
    parser.add_argument("-k", type=whole(0), metavar="K", help="how many hits (default 10)")
    parser.add_argument(
        "--join",
        choices=("any", "equi", "semantic"),
        default="any",
        help="equi: equal values; semantic: values that mean the same; any (default): both",
    )
    parser.add_argument(
        "--tau",
        metavar="T",
        type=share,
        help="cosine from which on two values match; default: the cell encoder's own",
    )
    parser.add_argument("--method", metavar="NAME", default="hybrid", help="see: deepjoin methods")
    parser.add_argument(
        "--min-joinability", metavar="T", type=share, help="only hits covering this share (0 to 1)"
    )
    parser.add_argument("--group", choices=("tables",), help="one hit a table")
    parser.add_argument(
        "--matches",
        metavar="N",
        type=whole(0),
        default=20,
        help="cells listed per hit (default 20)",
    )
    _format_argument(parser, "csv")
    # An index alone is nothing to search with: what stands there must be the query.
    parser.set_defaults(incomplete=lambda given: given.query is None and given.values is None)


def _join(commands: Commands) -> None:
    parser = _command(
        commands,
        "join",
        "join your file with a table of the lake",
        "examples:\n"
        "  deepjoin join data/ orders.csv -c customer --with crm/clients.csv:name --preview 5\n"
        "  deepjoin join data/ orders.csv -c customer --with crm/clients.csv:name -o out.parquet\n"
        "  deepjoin join data/ orders.csv -c customer --with crm/clients.csv:name --sql\n"
        "  deepjoin join data/ orders.csv -c customer --with crm/clients.csv:name --join semantic\n"
        "\n"
        "An equi-join matches equal cells: case, white space and the like aside. A semantic join\n"
        "also matches what means the same, UK and United Kingdom, a firm with and without Ltd,\n"
        "and says in a column how similar the two are. Look at some before you trust all:\n"
        "--near-misses 20 shows what was just not enough, and --tau where to draw the line.",
    )
    _index_argument(parser)
    parser.add_argument("file", metavar="FILE", help="your table, or one of the lake")
    parser.add_argument("-c", "--column", metavar="COLUMN", required=True, help="its key column")
    parser.add_argument(
        "--with",
        dest="target",
        metavar="TABLE:COLUMN",
        type=target,
        required=True,
        help="the table of the lake and its key column, as a search names them",
    )
    parser.add_argument(
        "--join",
        choices=("equi", "semantic"),
        default="equi",
        help="equal values (default), or also values that mean the same",
    )
    _semantic_arguments(parser)
    parser.add_argument("--how", choices=("left", "inner"), default="left")
    parser.add_argument(
        "--many",
        choices=("expand", "first", "aggregate"),
        default="expand",
        help="when several rows match: all of them, the first, or one row of means and lists",
    )
    parser.add_argument("--preview", metavar="N", type=whole(0), help="show the first N rows only")
    parser.add_argument(
        "--sql", action="store_true", help="print the SQL, the database's own for its tables"
    )
    parser.add_argument("--pandas", action="store_true", help="print the pandas equivalent")
    parser.add_argument("--unmatched", action="store_true", help="your rows that match nothing")
    parser.add_argument("-o", "--out", metavar="OUT", help=".parquet, .csv, .tsv or .csv.gz")
    _format_argument(parser, "csv")


def _semantic_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tau",
        metavar="T",
        type=share,
        help="semantic: least similarity of a match, up to 1; default: the cell encoder's own",
    )
    parser.add_argument(
        "--matching",
        choices=("best", "one-to-one", "all"),
        default="best",
        help="semantic: every value of yours meets its best match (default), its best one that "
        "no other value of yours fits better, or all that are similar enough",
    )
    parser.add_argument(
        "--near-misses",
        metavar="N",
        type=whole(0),
        help="the N values of yours that just found no match, and what is nearest to them",
    )
    parser.add_argument(
        "--matches-out",
        metavar="FILE",
        help="also write which value matches which, and how similar they are; the SQL and the "
        "pandas code then read it (.parquet)",
    )


def _info(commands: Commands) -> None:
    parser = _command(commands, "info", "say what an index holds, what was left out, and why")
    _index_argument(parser)
    parser.add_argument("table", metavar="TABLE", nargs="?", help="one table, column by column")
    _format_argument(parser)


def _check(commands: Commands) -> None:
    parser = _command(
        commands,
        "check",
        "look for damage in an index, and compare it with its tables",
        "examples:\n"
        "  deepjoin check data/\n"
        "  deepjoin check my.index --all         read every table again, not just some",
    )
    _index_argument(parser)
    parser.add_argument(
        "--tables",
        metavar="N",
        type=whole(0),
        default=100,
        help="how many tables to read again and compare (default 100)",
    )
    parser.add_argument("--all", action="store_true", help="read every table again and compare it")
    _format_argument(parser)


def _methods(commands: Commands) -> None:
    _format_argument(_command(commands, "methods", "list the search methods"))


def _evaluate(commands: Commands) -> None:
    parser = _command(
        commands,
        "evaluate",
        "measure methods on a column corpus, against the exact answer and labels",
        "examples:\n"
        "  deepjoin evaluate corpus/ --methods exact-equi,hybrid --join equi -k 10,20\n"
        "  deepjoin evaluate corpus/ --methods hybrid --join any -k 10 --cache kept/",
    )
    parser.add_argument(
        "corpus", metavar="CORPUS", help="folder of columns.parquet, queries.parquet"
    )
    parser.add_argument("--methods", metavar="a,b", default="hybrid", help="see: deepjoin methods")
    parser.add_argument(
        "--join",
        choices=("equi", "semantic", "any"),
        default="equi",
        help="equi (default) and semantic are compared with the exact answer, any with labels only",
    )
    parser.add_argument(
        "-k", metavar="K,K", type=depths, default="10,20,30,40,50", help="depths to measure at"
    )
    parser.add_argument("--queries", metavar="N", type=whole(1), help="only the first N queries")
    parser.add_argument(
        "--tau", metavar="T", type=share, help="semantic, any: as for deepjoin search"
    )
    parser.add_argument(
        "--encoder", metavar="NAME|DIR", help="for methods with column vectors (default: default)"
    )
    parser.add_argument(
        "--cells", metavar="NAME|PATH|none", help="for methods with cell vectors; the truth too"
    )
    parser.add_argument(
        "--sketch", metavar="N", type=whole(1), help="for methods with sketches (default 768)"
    )
    parser.add_argument(
        "--candidates",
        action="store_true",
        help="also measure how much of the exact top 10 is among the first 500",
    )
    parser.add_argument("--cache", metavar="DIR", help="keep built indexes and truth here")
    parser.add_argument(
        "--format", choices=("table", "json"), default="json", help="form of the result"
    )
    parser.add_argument("-o", "--out", metavar="DIR", help="also write the rows to DIR/rows.jsonl")


def _demo(commands: Commands) -> None:
    parser = _command(commands, "demo", "write a small lake, index it, search it, join it")
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", default="deepjoin-demo", help="where to"
    )
