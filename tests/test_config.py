"""Options from `deepjoin.toml`: found upwards, checked like the command line, beaten by it."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from deepjoin.cli import main
from deepjoin.cli.config import NAME, VARIABLE, parse
from deepjoin.cli.parser import make_parser
from deepjoin.errors import DeepJoinError

FULL = """\
[defaults]
index = "lake.index"
format = "json"

[index]
source = ["data", "s3://bucket/tables", "/elsewhere"]
out = "lake.index"
include = ["*.csv"]
exclude = "tmp/*"
min_distinct = 2
deny-column = ["email", "phone"]
memory = "500M"
threads = 3
rebuild = true
profile = "basic"

[search]
k = 7
join = "equi"
matches = 0
min-joinability = 0.25

[evaluate]
k = "5,10"
cache = "cache"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder below one that may hold a file."""
    below = tmp_path / "project" / "deep" / "down"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "project"


def parsed(*arguments: str) -> argparse.Namespace:
    return parse(make_parser(), arguments)


def refusal(folder: Path, text: str, *arguments: str) -> str:
    """Return the one line that a file is refused with."""
    (folder / NAME).write_text(text)
    with pytest.raises(DeepJoinError) as error:
        parsed(*(arguments or ("methods",)))
    assert "\n" not in str(error.value)
    assert str(folder / NAME) in str(error.value)
    return str(error.value)


def test_every_kind_of_option_comes_from_the_file(folder: Path) -> None:
    (folder / NAME).write_text(FULL)
    options = parsed("index")
    assert options.source == [str(folder / "data"), "s3://bucket/tables", "/elsewhere"]
    assert options.out == str(folder / "lake.index")
    assert (options.include, options.exclude) == (["*.csv"], ["tmp/*"])
    assert (options.min_distinct, options.threads) == (2, 3)
    assert options.deny_column == ["email", "phone"]
    assert options.memory == 500 << 20
    assert (options.rebuild, options.dry_run) == (True, False)
    assert (options.profile, options.format) == ("basic", "json")
    options = parsed("search", "--values", "a,b")
    assert options.index == str(folder / "lake.index")
    assert (options.k, options.join, options.matches) == (7, "equi", 0)
    assert (options.min_joinability, options.method) == (0.25, "hybrid")
    options = parsed("evaluate", "corpus")
    assert (options.k, options.cache) == ([5, 10], str(folder / "cache"))


def test_the_command_line_goes_first(folder: Path) -> None:
    (folder / NAME).write_text(FULL)
    line = "index other --include *.tsv -o here --memory 1K --threads 1 --format table"
    options = parsed(*line.split())
    assert options.source == ["other"]
    assert (options.include, options.exclude) == (["*.tsv"], ["tmp/*"])
    assert (options.out, options.memory, options.threads) == ("here", 1 << 10, 1)
    assert options.format == "table"
    assert parsed("search", "-k", "1", "--values", "a").k == 1


def test_without_a_file_nothing_changes(folder: Path) -> None:
    for line in ("index data --rebuild", "search data orders.csv -k 3", "info data"):
        expected = vars(make_parser().parse_args(line.split()))
        found = vars(parsed(*line.split()))
        for names in (expected, found):
            names.pop("run"), names.pop("incomplete", None)
        assert found == expected


INDEX = '[defaults]\nindex = "lake"\n[join]\ncolumn = "id"\n'


@pytest.mark.parametrize(
    ("line", "index", "query"),
    [
        ("search orders.csv", None, "orders.csv"),
        ("search orders.csv -c id", None, "orders.csv"),
        ("search -c id orders.csv", None, "orders.csv"),
        ("search -", None, "-"),
        ("search --values a,b", None, None),
        ("search", None, None),
        ("search here orders.csv", "here", "orders.csv"),
        ("search here --values a,b", "here", None),
        ("search here -", "here", "-"),
    ],
)
def test_what_stands_for_index_in_a_search(
    folder: Path, line: str, index: str | None, query: str | None
) -> None:
    (folder / NAME).write_text(INDEX)
    options = parsed(*line.split())
    assert options.index == (index or str(folder / "lake"))
    assert options.query == query


@pytest.mark.parametrize(
    ("line", "index"),
    [
        ("info", None),
        ("info --format json", None),
        ("info here", "here"),
        ("join orders.csv --with a:b", None),
        ("join --with a:b orders.csv", None),
        ("join here orders.csv --with a:b", "here"),
    ],
)
def test_the_index_may_be_left_out(folder: Path, line: str, index: str | None) -> None:
    (folder / NAME).write_text(INDEX)
    options = parsed(*line.split())
    assert options.index == (index or str(folder / "lake"))
    if line.startswith("join"):
        assert (options.file, options.column) == ("orders.csv", ["id"])


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("info one two three", "unrecognized arguments: three"),
        ("join orders.csv", "required"),
        ("info --format xml", "invalid choice"),
        ("index", "SOURCE"),
        ("serch", "serch"),
        ("--confg x info", "no command 'x'"),
        ("--config", "--config"),
    ],
)
def test_usage_errors_stay_as_they_are(
    folder: Path, capsys: pytest.CaptureFixture[str], line: str, text: str
) -> None:
    (folder / NAME).write_text('[defaults]\nindex = "lake"\n')
    with pytest.raises(SystemExit) as usage:
        parsed(*line.split())
    assert usage.value.code == 2
    captured = capsys.readouterr()
    assert text in captured.err
    assert captured.err.count("\n") == 1


def test_a_table_of_the_command_beats_the_defaults(folder: Path) -> None:
    (folder / NAME).write_text('[defaults]\nindex = "a"\nformat = "json"\n[info]\nindex = "b"\n')
    assert parsed("info").index == str(folder / "b")
    assert parsed("info").format == "json"
    assert parsed("search", "--values", "x").index == str(folder / "a")


def test_home_and_absolute_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    (folder / NAME).write_text('[index]\nsource = "~/data"\nout = "/abs"\ntitles = "t.csv"\n')
    options = parsed("index")
    assert options.source == [str(folder / "data")]
    assert (options.out, options.titles) == ("/abs", str(folder / "t.csv"))


def test_the_nearest_file_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / NAME).write_text("[search]\nk = 1\n")
    assert parsed("search", "i", "q").k == 1
    (folder / "deep" / NAME).write_text("[search]\nk = 2\n")
    assert parsed("search", "i", "q").k == 2
    other = folder / "other.toml"
    other.write_text("[search]\nk = 3\n")
    monkeypatch.setenv(VARIABLE, str(other))
    assert parsed("search", "i", "q").k == 3
    assert parsed("--config", str(folder / NAME), "search", "i", "q").k == 1
    assert parsed("--config", "/dev/null", "search", "i", "q").k is None


def test_a_file_that_lets_others_in_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / NAME).write_text(
        '[serve]\nindex = "lake"\nhost = "0.0.0.0"\nout = "/srv"\ntoken = "hunter2"\n'
        '[index]\nversion-query = "SELECT 1"\nray-address = "ray://h:1"\n'
    )
    assert parsed("serve", "--port", "1").host == "0.0.0.0"
    assert capsys.readouterr().err == (
        f"{folder / NAME} sets --host 0.0.0.0, --out /srv, --token.\n"
    )
    parsed("serve", "--host", "localhost", "--out", ".", "--token", "t")
    assert capsys.readouterr().err == ""
    parsed("index", "data")
    assert (
        capsys.readouterr().err
        == f"{folder / NAME} sets --version-query SELECT 1, --ray-address ray://h:1.\n"
    )
    (folder / NAME).write_text(
        '[join]\nout = "/b.csv"\ndecisions = "/d.csv"\n[relations]\nout = "/r.sql"\n'
        '[search]\nvector-store = "postgresql://u:secret@elsewhere/v"\n'
    )
    parsed("join", "i", "q.csv", "-c", "x", "--with", "t:c")
    assert capsys.readouterr().err == f"{folder / NAME} sets --out /b.csv, --decisions /d.csv.\n"
    parsed("relations", "i")
    assert capsys.readouterr().err == f"{folder / NAME} sets --out /r.sql.\n"
    parsed("search", "i", "q")
    assert capsys.readouterr().err == f"{folder / NAME} sets --vector-store.\n"


@pytest.mark.parametrize("border", ["home", "repository"])
def test_no_file_beyond_the_home_folder_or_the_repository(
    folder: Path, monkeypatch: pytest.MonkeyPatch, border: str
) -> None:
    (folder / NAME).write_text("[search]\nk = 1\n")
    if border == "home":
        monkeypatch.setenv("HOME", str(folder / "deep"))
    else:
        (folder / "deep" / ".git").mkdir()
    assert parsed("search", "i", "q").k is None
    (folder / "deep" / NAME).write_text("[search]\nk = 2\n")
    assert parsed("search", "i", "q").k == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[serach]\nk = 1", "No table 'serach' in {file}. Tables: defaults, demo,"),
        ("[serach]\nk = 1", "Did you mean 'search'?"),
        ("[index]\nprofle = 'basic'", "No key 'profle' in [index] of {file}. Keys: source, out,"),
        ("[index]\nprofle = 'basic'", "Did you mean 'profile'?"),
        ("[defaults]\nindx = 'a'", "No key 'indx' in [defaults] of {file}."),
        ("[info]\ntable = 'a'", "No key 'table' in [info] of {file}."),
        ("k = 1", "{file}: 'k' is outside every table; move it under a command,"),
        ("[search]\nk = 'many'", "{file}, [search] k: must be a whole number >= 1, got 'many'."),
        ("[search]\nk = -1", "{file}, [search] k: must be a whole number >= 1, got '-1'."),
        (
            "[search]\nk = true",
            "{file}, [search] k: expected a quoted string or a number, got true.",
        ),
        ("[search]\nk = [1]", "{file}, [search] k: expected one value, got a list."),
        ("[search]\njoin = 'eqiu'", "'eqiu' is not one of any, equi, semantic. Did you mean"),
        ("[search]\nmethod = 5", "{file}, [search] method: expected a quoted string, got 5."),
        ("[search]\nmin_joinability = 2", "must be a number between 0 and 1, got '2'."),
        ("[index]\ninclude = [1]", "{file}, [index] include: expected a quoted string, got 1."),
        ("[index]\nsource = []", "{file}, [index] source: the list is empty."),
        ("[index]\nrebuild = 'yes'", "{file}, [index] rebuild: expected true or false, got 'yes'."),
        (
            "[index]\nthreads = {a = 1}",
            "[index] threads: expected a quoted string or a number, got {{'a': 1}}.",
        ),
        ("[defaults]\nformat = 'csv'", "{file}, [defaults] format: 'csv' is not one of table,"),
        ("[search]\nk = ", "{file} is not valid TOML: Invalid value (at line 2, column 5)."),
        ("[search]\nk = 1\nk = 2", "(at line 3, column"),
    ],
)
def test_mistakes_in_the_file_are_one_line(folder: Path, text: str, expected: str) -> None:
    assert expected.format(file=folder / NAME) in refusal(folder, text)


def test_a_value_the_parser_itself_would_not_take(folder: Path) -> None:
    parser = make_parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    commands.choices["info"].add_argument("--depth", type=int)
    (folder / NAME).write_text("[info]\ndepth = 'deep'\n")
    with pytest.raises(DeepJoinError, match=r"\[info\] depth: 'deep' is not allowed\."):
        parse(parser, ["info", "here"])
    (folder / NAME).write_text("[info]\ndepth = 3\n")
    assert parse(parser, ["info", "here"]).depth == 3


def test_new_options_need_not_be_named_here(folder: Path) -> None:
    parser = make_parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    info = commands.choices["info"]
    info.add_argument("--notes", action=argparse.BooleanOptionalAction)
    info.add_argument("--plain", dest="rich", action="store_false")
    info.add_argument("--only", nargs=2)
    (folder / NAME).write_text("[info]\nnotes = false\nplain = true\nonly = ['a', 'b']\n")
    options = parse(parser, ["info", "here"])
    assert (options.notes, options.rich, options.only) == (False, False, ["a", "b"])


def test_files_that_cannot_be_read(folder: Path) -> None:
    with pytest.raises(DeepJoinError, match=r"Cannot read the configuration file gone\.toml: No"):
        parsed("--config", "gone.toml", "methods")
    (folder / NAME).write_bytes(b"[search]\n# gr\xfc\xdfe\nk = 1\n")
    with pytest.raises(DeepJoinError, match=r"is not UTF-8 in line 2; save it as UTF-8\."):
        parsed("methods")
    (folder / NAME).write_bytes(b"\xef\xbb\xbf[search]\r\nk = 1\r\n")
    assert parsed("search", "i", "q").k == 1


def test_help_and_version_answer_whatever_the_file_says(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / NAME).write_text("nonsense")
    for line in (["--help"], ["--version"], ["index", "--help"]):
        with pytest.raises(SystemExit) as done:
            main(line)
        assert done.value.code == 0
    assert "deepjoin.toml" in capsys.readouterr().out
    assert main(["methods"]) == 1
    assert capsys.readouterr().err.startswith("deepjoin: ")


def test_a_lake_indexed_and_searched_by_the_file_alone(
    lake_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(lake_folder / "geo")
    (lake_folder.parent / NAME).write_text(
        '[defaults]\nindex = "my.index"\n[index]\nsource = "data"\nout = "my.index"\n'
    )
    assert main(["index"]) == 0
    assert capsys.readouterr().out == f"{lake_folder.parent / 'my.index'}\n"
    assert main(["search", "../../orders.csv", "-c", "customer_country"]) == 0
    assert "geo/countries.csv" in capsys.readouterr().out
    assert main(["info"]) == 0
    assert "3 tables" in capsys.readouterr().out
