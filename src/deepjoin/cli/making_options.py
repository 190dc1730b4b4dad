"""The commands that make and keep an index, with the help that teaches them."""

from __future__ import annotations

from deepjoin.cli.command import Commands, command, format_argument, index_argument
from deepjoin.cli.values import size, whole


def add_index(commands: Commands) -> None:
    """Add the command to index folders, files, databases, buckets."""
    parser = command(
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
        metavar="NAME|DIR|KIND:WHERE|none",
        help="what gives each column a vector: default, a model folder, the name of a model, the "
        "KIND:WHERE of another method, or none; only the methods that say so in `deepjoin methods` "
        "need it",
    )
    parser.add_argument(
        "--cells",
        metavar="NAME|PATH|none",
        help="what gives each value a vector, for semantic joins: default, a folder made by "
        "python -m deepjoin.lab.cell_table.make, fastText vectors (.vec, .bin), or none",
    )
    parser.add_argument(
        "--sketch",
        metavar="N",
        type=whole(0),
        help="numbers in a column's sketch, for the sketch methods; default 0: none",
    )
    parser.add_argument(
        "--vector-index",
        metavar="KIND",
        help="how to search column vectors: auto (default), flat, hnsw, ivfpq, scan4, ivf4, ...",
    )
    parser.add_argument(
        "--metric",
        choices=("cosine", "euclidean"),
        help="how near column vectors are (default cosine)",
    )
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="cuda, cuda:1 or cpu: where an encoder that runs on torch works; default: a GPU if "
        "there is one",
    )
    parser.add_argument(
        "--engine",
        metavar="NAME",
        help="who reads and encodes: local (default), or ray, the workers of a cluster",
    )
    parser.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="where the Ray cluster is; default: RAY_ADDRESS, one that runs here, or a new one",
    )
    parser.add_argument(
        "--rebuild", action="store_true", help="index again even if no file has changed"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would happen, write nothing"
    )
    format_argument(parser)


def add_add(commands: Commands) -> None:
    """Add the command to add tables."""
    parser = command(
        commands,
        "add",
        "index more tables into a lake",
        "examples:\n"
        "  deepjoin add my.index new/orders.csv\n"
        "  deepjoin add my.index postgresql://me@db/shop\n\n"
        "Tables that came from the same files are replaced. `deepjoin index` looks after what "
        "was added as well.",
    )
    index_argument(parser)
    parser.add_argument(
        "source", metavar="SOURCE", nargs="+", help="as for deepjoin index; outside or inside it"
    )
    format_argument(parser)


def add_remove(commands: Commands) -> None:
    """Add the command to take tables out."""
    parser = command(
        commands,
        "remove",
        "take tables out of a lake; their files stay",
        "examples:\n"
        "  deepjoin remove my.index geo/old.csv\n"
        "  deepjoin remove my.index 'tmp/*'\n\n"
        "`deepjoin index` does not bring them back; `deepjoin add` does.",
    )
    index_argument(parser)
    parser.add_argument("tables", metavar="TABLE", nargs="+", help="a name or a 'pattern'")
    format_argument(parser)


def add_compact(commands: Commands) -> None:
    """Add the command to merge segments."""
    parser = command(
        commands, "compact", "merge what many changes have left into one segment, for good"
    )
    index_argument(parser)


def add_check(commands: Commands) -> None:
    """Add the command to look for damage."""
    parser = command(
        commands,
        "check",
        "look for damage in an index, and compare it with its tables",
        "examples:\n"
        "  deepjoin check data/\n"
        "  deepjoin check my.index --all         read every table again, not just some",
    )
    index_argument(parser)
    parser.add_argument(
        "--tables",
        metavar="N",
        type=whole(0),
        default=100,
        help="how many tables to read again and compare (default 100)",
    )
    parser.add_argument("--all", action="store_true", help="read every table again and compare it")
    format_argument(parser)
