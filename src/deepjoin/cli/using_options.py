"""The commands that search and join, and those that tell, with the help that teaches them."""

from __future__ import annotations

import argparse

from deepjoin.cli.command import (
    Commands,
    command,
    format_argument,
    index_argument,
    vector_store_argument,
)
from deepjoin.cli.values import depths, share, target, whole


def add_search(commands: Commands) -> None:
    """Add the command to find columns that join."""
    parser = command(
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
    index_argument(parser)
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
        "--device",
        metavar="NAME",
        help="cuda or cuda:1: search column vectors on a GPU, every one of them (needs torch)",
    )
    vector_store_argument(parser)
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
    format_argument(parser, "csv")
    # An index alone is nothing to search with: what stands there must be the query.
    parser.set_defaults(incomplete=lambda given: given.query is None and given.values is None)


def add_join(commands: Commands) -> None:
    """Add the command to join tables."""
    parser = command(
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
    index_argument(parser)
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
    format_argument(parser, "csv")


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


def add_graph(commands: Commands) -> None:
    """Add the command to find all joins of a lake."""
    parser = command(
        commands,
        "graph",
        "find all joinable pairs of columns of a lake, exactly",
        "examples:\n"
        "  deepjoin graph data/                           keep the graph in the index\n"
        "  deepjoin graph data/ --min-joinability 0.5 -o edges.parquet\n"
        "  deepjoin graph data/ -o edges.graphml          for Gephi, yEd or NetworkX\n\n"
        "Two columns join if one of them holds at least the share T of the other's distinct\n"
        "values. The next run only joins what has changed since.",
    )
    index_argument(parser)
    _graph_edges(parser)
    parser.add_argument("--no-save", action="store_true", help="leave nothing in the index folder")
    parser.add_argument("--rebuild", action="store_true", help="join everything again")
    parser.add_argument(
        "-o", "--out", metavar="EDGES", help="write the edges: .csv, .parquet, .json or .graphml"
    )
    format_argument(parser)


def _graph_edges(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--min-joinability",
        metavar="T",
        type=share,
        default=0.7,
        help="share of the smaller column's distinct values found in the other (default 0.7)",
    )
    parser.add_argument(
        "--most",
        metavar="N",
        type=whole(1),
        help="only the best N edges of each column with larger ones; what is left out is counted",
    )


def add_info(commands: Commands) -> None:
    """Add the command to describe an index."""
    parser = command(commands, "info", "say what an index holds, what was left out, and why")
    index_argument(parser)
    parser.add_argument("table", metavar="TABLE", nargs="?", help="one table, column by column")
    format_argument(parser)


def add_methods(commands: Commands) -> None:
    """Add the command to list the search methods."""
    format_argument(command(commands, "methods", "list the search methods"))


def add_evaluate(commands: Commands) -> None:
    """Add the command to measure methods."""
    parser = command(
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
        "--encoder",
        metavar="NAME|DIR|KIND:WHERE",
        action="append",
        help="for methods with column vectors (default: default); KIND:WHERE for the method KIND, "
        "as in fasttext:cc.en.300.bin; may be given for each",
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


def add_demo(commands: Commands) -> None:
    """Add the command to show what it can do."""
    parser = command(commands, "demo", "write a small lake, index it, search it, join it")
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", default="deepjoin-demo", help="where to"
    )
