"""Tables wherever the command line reads texts or labels, and tables of predictions."""

import csv
import gzip
import io
import json
import subprocess
import sys

import openpyxl
import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from helpers.command import call
from helpers.synthetic import topics
from unidex.cli import main as cli
from unidex.data.dataset import Propensity
from unidex.data.formats import read
from unidex.data.formats.table_files import open_table
from unidex.data.read_options import ReadOptions
from unidex.data.summary import cautions
from unidex.errors import DataError, MissingExtraError
from unidex.metrics.propensity import inverse_propensity
from unidex.model.model import Model
from unidex.verbs.train import train

DATA = topics(num_train=240, num_test=40)
NAMES = ["case", "note", "codes", "ward"]
# Fast, with probabilities: 20 held-out texts.
SMALL = ["encoder.dim=16", "features.min_df=1", "train.epochs=4", "train.batch_size=12", "train.validation=0.1"]
SMALL += ["augment.method=none", "pool.try_hard_negatives=0", "predict.index=exact"]
SMALL += ["predict.knn=0.1", "predict.choose_knn=false"]


def rows_of(split, sign):
    for row, text in enumerate(split.texts):
        labels = [DATA.labels.uid(label) for label in split.positives[[row]].indices.tolist()]
        yield [f"{sign}{row}", text, "/".join(labels), f"ward {row % 3}"]


def put_csv(file, rows, names=NAMES, delimiter=","):
    text = io.StringIO(newline="")
    table = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    table.writerow(names)
    table.writerows(rows)
    data = text.getvalue().encode()
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
    return file


def put_xlsx(file, rows, names=NAMES):
    book = openpyxl.Workbook()
    for row in (names, *rows):
        book.active.append(row)
    book.save(file)
    return file


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model from a table whose columns no one could guess, with a separator that is not guessed either."""
    folder = tmp_path_factory.mktemp("models")
    table = put_csv(folder / "train.csv", rows_of(DATA.train, "A"))
    reading = ReadOptions(columns={"text": "note", "labels": "codes"}, separator="/", test_fraction=0)
    train(table, settings=SMALL, out=folder / "model", reading=reading)
    return folder / "model"


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    """New texts in every kind of table."""
    folder, rows = tmp_path_factory.mktemp("new"), list(rows_of(DATA.test, "N"))
    put_csv(folder / "new.csv", rows)
    put_csv(folder / "new.csv.gz", rows)
    put_csv(folder / "new.tsv", rows, delimiter="\t")
    put_xlsx(folder / "new.xlsx", rows)
    records = [dict(zip(NAMES, row, strict=True)) for row in rows]
    (folder / "new.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), folder / "new.parquet")
    return folder


def told(*arguments):
    """Run the command and return what it says on standard error."""
    done = CliRunner().invoke(cli.app, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stderr


def cells(file):
    """The columns and the rows of a table, as our own reader sees them."""
    table = open_table(file)
    blocks = list(table.blocks({f"column {number}": name for number, name in enumerate(table.names)}))
    return table.names, [list(row) for block in blocks for row in zip(*block.values(), strict=True)]


def test_a_table_is_read_with_the_columns_of_the_training(model, new):
    expected = [text for _, text, _, _ in rows_of(DATA.test, "N")]
    for name in ("new.csv", "new.csv.gz", "new.tsv", "new.xlsx", "new.jsonl", "new.parquet"):
        found = [json.loads(line) for line in call("predict", model, new / name, "--json").stdout.splitlines()]
        assert [row["text"] for row in found] == expected
    assert "new.csv: columns are text=note" in told("predict", model, new / "new.csv", "-k", 1)
    found = call("predict", model, new / "new.csv", "--column", "text=ward", "--json").stdout.splitlines()
    assert json.loads(found[1])["text"] == "ward 1"


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "csv.gz", "jsonl.gz", "parquet", "xlsx"])
def test_out_keeps_all_columns_and_adds_labels_by_place(model, new, tmp_path, ending):
    out = tmp_path / f"labels.{ending}"
    done = call("predict", model, new / "new.csv", "-k", 2, "--out", out)
    assert done.stdout == f"{out}: 40 texts, 80 labels\n"
    names, rows = cells(out)
    assert names == [*NAMES, "label_1", "uid_1", "probability_1", "label_2", "uid_2", "probability_2"]
    assert [row[:4] for row in rows] == list(rows_of(DATA.test, "N"))
    loaded = Model.load(model)
    best = loaded.predict(list(DATA.test.texts), 2).ids[:, 0].tolist()
    assert [row[5] for row in rows] == [loaded.labels.uids[label] for label in best]
    assert all(0 <= float(row[6]) <= 1 for row in rows)
    assert [entry.name for entry in tmp_path.iterdir()] == [out.name]


def test_types_and_columns_survive_from_table_to_table(model, tmp_path):
    # The first of the numbers is missing, so that a first glance would not tell the type.
    records = [{"note": "w0a w1b", "age": None, "tags": ["x", "y"]}, {"note": "w2c", "age": 40, "tags": None}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
    call("predict", model, tmp_path / "a.parquet", "-k", 1, "--out", tmp_path / "b.parquet")
    found = pyarrow.parquet.read_table(tmp_path / "b.parquet")
    assert found.select(["note", "age", "tags"]).to_pylist() == records
    assert str(found.schema.field("age").type) == "int64"
    call("predict", model, tmp_path / "a.parquet", "-k", 1, "--out", tmp_path / "b.jsonl")
    assert json.loads((tmp_path / "b.jsonl").read_text().splitlines()[0])["tags"] == ["x", "y"]
    call("predict", model, tmp_path / "b.jsonl", "-k", 1, "--out", tmp_path / "c.csv")
    names, rows = cells(tmp_path / "c.csv")
    # The table has the columns of the first prediction, so that those of the second get a name of their own.
    assert names[3:] == [f"{sign}{part}_1" for sign in ("", "predicted_") for part in ("label", "uid", "probability")]
    assert rows[0][2] == '["x", "y"]'


def test_long_tables_have_one_row_per_label_and_keep_texts_without_labels(model, tmp_path):
    table = put_csv(tmp_path / "a.csv", [["w0a w1b w2c w3d", "1"], ["  ", "2"]], ["note", "uid"])
    said = told("predict", model, table, "-k", 2, "--out", tmp_path / "b.csv", "--long")
    assert "1 text is blank, and without labels in the result." in said
    names, rows = cells(tmp_path / "b.csv")
    added = ["rank", "uid", "label", "score", "probability", "frequency"]
    assert names == ["note", "uid", *(f"predicted_{name}" for name in added)]
    assert [row[1:3] for row in rows] == [["1", "1"], ["1", "2"], ["2", ""]]
    with pytest.raises(DataError, match="--long is about the table of --out"):
        call("predict", model, table, "--long")


def test_min_probability_leaves_cells_empty(model, new, tmp_path):
    call("predict", model, new / "new.csv", "-k", 5, "--min-probability", 0.999, "--out", tmp_path / "a.parquet")
    found = pyarrow.parquet.read_table(tmp_path / "a.parquet")
    assert found.num_rows == 40
    assert found["label_5"].null_count == 40
    assert str(found.schema.field("probability_5").type) == "double"


def test_spreadsheets_get_texts_and_never_formulas_or_broken_cells(model, tmp_path):
    table = put_csv(tmp_path / "a.csv", [["=1+1"], ["w0a\x07 w1b"], ["w0a " * 10_000]], ["note"])
    said = told("predict", model, table, "-k", 1, "--out", tmp_path / "b.xlsx")
    assert "cells are cut at 32,767 characters, the limit of XLSX, characters that XLSX cannot hold are" in said
    sheet = openpyxl.load_workbook(tmp_path / "b.xlsx").active
    assert [sheet["A2"].value, sheet["A2"].data_type, sheet["A3"].value] == ["=1+1", "s", "w0a  w1b"]


def test_lines_documents_and_pipes(model, new, tmp_path):
    for number, text in enumerate(["w0a w1b\nw4e\n", "w2c w3d"]):
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
    lines = call("predict", model, tmp_path / "0.txt", "--json").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["w0a w1b", "w4e"]
    files = [str(tmp_path / "0.txt"), str(tmp_path / "1.txt")]
    lines = call("predict", model, "--document", *files, "--json", "-k", 1).stdout.splitlines()
    assert [json.loads(line)["file"] for line in lines] == files
    call("predict", model, "--document", *files, "--out", tmp_path / "a.csv", "-k", 1)
    assert [row[0] for row in cells(tmp_path / "a.csv")[1]] == files
    with pytest.raises(DataError, match="there must be one FILE of texts, but there are 2; if each is one text, add"):
        call("predict", model, *files)
    table = (new / "new.csv").read_bytes()
    for words, num_texts in ((["--format", "csv"], 40), ([], 41)):
        command = ["predict", str(model), "-", "--json", *words]
        done = CliRunner().invoke(cli.app, command, input=table, catch_exceptions=False)
        assert len(done.stdout.splitlines()) == num_texts
        # Who forgets the format is told so.
        assert ("looks like the header of a table, but is read as a text" in done.stderr) == (num_texts == 41)


def test_the_first_sheet_of_a_workbook_is_read(model, tmp_path):
    put_xlsx(tmp_path / "a.xlsx", [["w0a w1b", 3.0], [None, None], ["w2c", 4.5]], ["note", "size"])
    book = openpyxl.load_workbook(tmp_path / "a.xlsx")
    book.create_sheet("notes").append(["something else"])
    book.save(tmp_path / "a.xlsx")
    said = told("predict", model, tmp_path / "a.xlsx", "-k", 1, "--out", tmp_path / "b.jsonl")
    assert "a.xlsx: the first of 2 sheets is read, 'Sheet'" in said
    assert [row[:2] for row in cells(tmp_path / "b.jsonl")[1]] == [["w0a w1b", 3], ["w2c", 4.5]]


def test_labels_are_added_from_tables(model, tmp_path):
    Model.load(model).save(tmp_path / "model")
    put_csv(tmp_path / "a.csv", [["X1", "green light"], ["", ""], ["", "red light"]], ["uid", "text"])
    found = json.loads(call("labels", "add", tmp_path / "model", "--file", tmp_path / "a.csv", "--json").stdout)
    assert [(row["uid"], row["text"]) for row in found["added"]] == [("X1", "green light"), ("red light", "red light")]
    put_xlsx(tmp_path / "b.xlsx", [[17, "blue light"]], ["code", "meaning"])
    columns = ["--column", "uid=code", "--column", "text=meaning"]
    found = call("labels", "add", tmp_path / "model", "--file", tmp_path / "b.xlsx", *columns, "--json").stdout
    assert [(row["uid"], row["text"]) for row in json.loads(found)["added"]] == [("17", "blue light")]
    put_csv(tmp_path / "c.csv", [["X2", ""]], ["uid", "text"])
    with pytest.raises(DataError, match=r"c.csv:2: a label must have a text, but 'X2' has none"):
        call("labels", "add", tmp_path / "model", "--file", tmp_path / "c.csv")
    with pytest.raises(DataError, match="--column uid=nr needs a column 'nr', but the columns are 'text', 'uid'"):
        call("labels", "add", tmp_path / "model", "--file", tmp_path / "c.csv", "--column", "uid=nr")


@pytest.mark.parametrize("verb", [("labels", "teach"), ("remember",)])
def test_pairs_are_read_from_tables_as_in_training(model, tmp_path, verb):
    Model.load(model).save(tmp_path / "model")
    pairs = put_csv(tmp_path / "pairs.csv", [["w50y w52a", "L1/L2"], ["w55d", " L3 "]], ["note", "codes"])
    found = json.loads(call(*verb, tmp_path / "model", pairs, "--out", tmp_path / "copy", "--json").stdout)
    assert (found["num_texts"], found["num_pairs"], found["num_labels"]) == (2, 3, 3)
    put_csv(pairs, [["w50y", "L1"], ["w55d", "L1,L2"]], ["note", "codes"])
    with pytest.raises(DataError, match=r"pairs.csv:3: a label must be one of the model's.*'L1,L2'"):
        call(*verb, tmp_path / "model", pairs)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["new.csv", "--out", "a.pdf"], "a.pdf: a table to write must end in .csv, .tsv or .jsonl"),
        (["new.csv", "--out", "no/a.csv"], "a.csv: the folder of the file to write must exist, but does not"),
        (["new.csv", "--out", "new.csv"], "new.csv: --out must not be the file that is read; name another"),
        (["new.csv", "--column", "text=x"], "new.csv: --column text=x needs a column 'x', but the columns are"),
        (
            ["new.csv", "--column", "text=note", "--column", "text=ward"],
            "each role once, but text is 'note' and 'ward'",
        ),
        (["other.csv"], "other.csv: no column looks like the text; the columns are 'b', 'c'"),
        (["twice.csv"], "twice.csv:1: column names must differ, but 'b' comes twice; rename one"),
        (["bad.xlsx"], "bad.xlsx: the file must be an XLSX workbook, but cannot be read"),
        (["new.csv", "--format", "pdf"], "--format must be one of csv, tsv, jsonl, parquet, xlsx, text, but is 'pdf'"),
        (["lines.txt", "--column", "text=note"], "--column has no part in reading a file of one text per line"),
        (["nowhere.csv"], "nowhere.csv: the file must exist, but does not"),
        (["a cough"], "there is none called 'a cough'; a text itself goes through standard input: echo TEXT |"),
        (["a cough " * 99], "there is none called 'a cough a cough a cough a cough a cough ...'; a text itself goes"),
        (["old.xls"], "old.xls: texts must be in a table or in plain text, but this is neither; save it as .xlsx"),
        (["--document", "a.pdf"], "a.pdf: texts must be in a table or in plain text, but this is neither; save it as"),
    ],
)
def test_wrong_files_are_one_line_and_nothing_is_written(model, tmp_path, arguments, match):
    put_csv(tmp_path / "new.csv", rows_of(DATA.test, "N"))
    put_csv(tmp_path / "other.csv", [["x", "y"]], ["b", "c"])
    put_csv(tmp_path / "twice.csv", [["x", "y", "z"]], ["note", "b", "b"])
    (tmp_path / "bad.xlsx").write_bytes(b"PK\x03\x04nothing")
    (tmp_path / "lines.txt").write_text("a\n", encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    paths = [tmp_path / word if "." in word else word for word in arguments]
    with pytest.raises(DataError) as caught:
        call("predict", model, *paths)
    assert match in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


def test_a_row_that_breaks_late_leaves_no_table(model, tmp_path):
    # What a killed process has left is deleted.
    (tmp_path / ".unfinished-0123abcd-b.csv").write_text("half")
    put_csv(tmp_path / "a.csv", [*([["w0a", "x"]] * 9000), ["w0a"]], ["note", "b"])
    with pytest.raises(DataError, match=r"a.csv:9002: a row must have 2 cells"):
        call("predict", model, tmp_path / "a.csv", "-k", 1, "--out", tmp_path / "b.csv")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.csv"]


def test_xlsx_without_openpyxl_names_the_extra(model, new, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    for arguments in ((new / "new.xlsx",), (new / "new.csv", "--out", tmp_path / "a.xlsx")):
        with pytest.raises(MissingExtraError, match=r'XLSX files needs the "xlsx" extra'):
            call("predict", model, *arguments)


# Judging a model on a table.


def evaluated(*arguments):
    done = CliRunner().invoke(cli.app, ["evaluate", *map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    return json.loads(done.stdout), done.stderr


@pytest.fixture
def mixed(tmp_path):
    """Ten new texts, the first of which has a label that the model does not know, and five train texts."""
    rows = list(rows_of(DATA.test, "N"))[:10] + list(rows_of(DATA.train, "A"))[:5]
    rows[0][2] += "/brand new"
    return put_csv(tmp_path / "mixed.csv", rows)


def test_all_rows_of_new_data_are_judged_and_train_texts_are_left_out(model, mixed):
    found, said = evaluated(model, mixed)
    assert (found["num_texts"], found["num_left_out"]) == (10, 5)
    assert (found["num_unknown_labels"], found["num_unknown_pairs"]) == (1, 1)
    assert "5 of 15 texts are train texts of the model and are left out; --with-train-texts counts them." in said
    assert "1 label is unknown to the model: 1 of" in said
    found, said = evaluated(model, mixed, "--with-train-texts")
    assert (found["num_texts"], found["num_left_out"]) == (15, 0)
    assert "5 of 15 texts are train texts of the model. They count: scores on them are too high." in said


def test_no_split_scores_train_texts(model, tmp_path):
    """Whatever the seed of a split, only texts that were not trained on count."""
    table = put_csv(tmp_path / "all.csv", [*rows_of(DATA.train, "A"), *rows_of(DATA.test, "N")])
    whole, _ = evaluated(model, table)
    assert whole["num_texts"] == 40
    part, _ = evaluated(model, table, "--test-fraction", 0.5, "--split-seed", 3)
    assert part["num_left_out"] > 100
    assert part["num_texts"] + part["num_left_out"] == 140
    with pytest.raises(DataError, match="--split-seed is about the share of --test-fraction, but there is none"):
        call("evaluate", model, table, "--split-seed", 3)
    train_only = put_csv(tmp_path / "train.csv", rows_of(DATA.train, "A"))
    with pytest.raises(DataError, match="judged on texts that it was not trained on, but all 240 are train texts"):
        call("evaluate", model, train_only)


def test_scores_on_a_part_of_the_labels_are_those_of_all_labels_and_frequencies(model, tmp_path):
    """The labels and frequencies of a small table must not stand for those of the model."""
    found, _ = evaluated(model, put_csv(tmp_path / "new.csv", list(rows_of(DATA.test, "N"))[:6]))
    loaded = Model.load(model)
    best = loaded.predict(list(DATA.test.texts[:6]), 5)
    names = [[loaded.labels.uids[label] for label in row] for row in best.ids.tolist()]
    truth = [{DATA.labels.uid(label) for label in DATA.test.positives[[row]].indices.tolist()} for row in range(6)]
    hits = sum(name in truth[row] for row in range(6) for name in names[row])
    assert found["P@5"] == pytest.approx(100 * hits / 30)
    about = loaded.metrics["data"]
    weights = inverse_propensity(loaded.labels.frequencies, about["num_train"], Propensity(**about["propensity"]))
    gained = sum(weights[loaded.labels.id_of(row[0])] for number, row in enumerate(names) if row[0] in truth[number])
    possible = sum(max(weights[loaded.labels.id_of(name)] for name in row) for row in truth)
    assert found["PSP@1"] == pytest.approx(100 * gained / possible)


def test_texts_that_are_taught_count_as_train_texts(model, mixed, tmp_path):
    Model.load(model).save(tmp_path / "model")
    pairs = put_csv(tmp_path / "pairs.csv", list(rows_of(DATA.test, "N"))[1:4])
    call("labels", "teach", tmp_path / "model", pairs)
    assert evaluated(tmp_path / "model", mixed)[0]["num_left_out"] == 8


def test_an_older_folder_says_that_train_texts_cannot_be_seen(model, mixed, tmp_path):
    older = Model.load(model)
    older.train_texts = None
    older.save(tmp_path / "older")
    found, said = evaluated(tmp_path / "older", mixed)
    assert (found["num_texts"], found["num_left_out"]) == (15, None)
    assert "Whether train texts are among these texts cannot be seen" in said


def test_calibrate_takes_all_rows_and_refuses_too_few(model, tmp_path):
    Model.load(model).save(tmp_path / "model")
    table = put_csv(tmp_path / "new.csv", [*rows_of(DATA.test, "N"), *rows_of(DATA.train, "A")])
    with pytest.raises(DataError, match="at least 50 texts that the model was not trained on, but there are 40"):
        call("calibrate", tmp_path / "model", table)
    found = json.loads(call("calibrate", tmp_path / "model", table, "--check", "--json").stdout)
    assert (found["num_texts"], found["num_left_out"]) == (40, 240)
    more = put_csv(tmp_path / "more.csv", rows_of(topics(num_test=60, seed=9).test, "M"))
    found = json.loads(call("calibrate", tmp_path / "model", more, "--json").stdout)
    assert found["num_texts"] == 60


# Care for what users' files are like.


def inspected(*arguments):
    done = CliRunner().invoke(cli.app, ["inspect", *map(str, arguments), "--json"], catch_exceptions=False)
    return json.loads(done.stdout), done.stderr


def test_blank_lines_are_no_rows(tmp_path):
    (tmp_path / "a.csv").write_text("\n  \ntext,labels\n\na,x\n   \nb,y\n\n", encoding="utf-8")
    assert inspected(tmp_path / "a.csv", "--test-fraction", 0)[0]["num_train"] == 2
    (tmp_path / "b.csv").write_text("text,labels\n  \na,x\nb\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"b.csv:4: a row must have 2 cells"):
        call("inspect", tmp_path / "b.csv")


def test_labels_split_at_commas_are_told_with_the_remedy(tmp_path):
    table = put_csv(tmp_path / "a.csv", [["red shoe", "Shoes, boots"], ["hat", "Hats"]], ["text", "labels"])
    found, said = inspected(table)
    assert found["num_labels"] == 3
    assert "labels are separated by ',' (guessed). If commas are part of labels" in said
    found, said = inspected(table, "--separator", "")
    assert found["num_labels"] == 2
    assert "guessed" not in said


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_the_advice_for_another_encoding_works(tmp_path, encoding):
    (tmp_path / "a b.csv").write_bytes("text,labels\ncafé noir,x\nthé,y\n".encode(encoding))
    with pytest.raises(DataError, match=r"a b.csv:\d: the file must be UTF-8, but has the byte 0x") as caught:
        call("inspect", tmp_path / "a b.csv")
    command = str(caught.value).partition("convert it: ")[2]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert inspected(tmp_path / "utf8-a b.csv", "--test-fraction", 0)[0]["examples"][0]["text"] == "café noir"


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([["a", "x"], ["b", "y"], ["c", "x"], ["d", "y"]], "There are only 4 train texts: the model can learn little"),
        (
            [[f"text {n}", "x"] for n in range(60)],
            "All labelled texts have the same label, 'x': every text will get it",
        ),
        ([[f"text {n}", f"L{n}"] for n in range(60)], "Every label has only one train text. Are the column"),
        ([*([f"text {n}", f"L{n % 2}"] for n in range(60)), ["", "L1"]], "1 of 61 train texts are empty"),
        ([*([f"text {n}", f"L{n % 2}"] for n in range(60)), ["x", ""]], "1 of 61 train texts have no label"),
    ],
)
def test_training_says_what_makes_a_model_worth_little(tmp_path, rows, match):
    found = cautions(read(put_csv(tmp_path / "a.csv", rows, ["text", "labels"]), ReadOptions(test_fraction=0)))
    assert [line for line in found if match in line] == found


def test_training_on_five_rows_warns_and_goes_on(tmp_path):
    table = put_csv(tmp_path / "a.csv", [[f"w{n} w{n % 2}", f"L{n % 2}"] for n in range(5)], ["text", "labels"])
    settings = [word for setting in SMALL for word in ("--set", setting)]
    assert "There are only 4 train texts" in told("train", table, *settings, "--out", tmp_path / "model")
