"""A Parquet file gives the same jobs as the CSV file with the same cells, and its errors name row and column."""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from emulator_runtime.domain.errors import InputError, UnknownNameError
from scheduler_sims.inputs.cluster_file import load_cluster
from scheduler_sims.inputs.fit import DoesNotFitError, check_fits
from scheduler_sims.inputs.table_file import read_table, write_table
from scheduler_sims.inputs.workload import COLUMNS, column_type, load_workload

ROOT = Path(__file__).parents[3]
WORKLOADS = sorted((ROOT / "examples").glob("*/*.csv"))
JOB = {"job_id": ["a"], "gpu_duration_s": [10.0]}


def written(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path, **options)
    return path


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., str]:
    def refused(columns: dict[str, Any] | bytes, error_class: type[InputError] = InputError) -> str:
        path = tmp_path / "w.parquet"
        if isinstance(columns, bytes):
            path.write_bytes(columns)
        else:
            written(path, columns)
        with pytest.raises(error_class) as caught:
            load_workload(path)
        assert "\n" not in str(caught.value)
        return str(caught.value).removeprefix(f"{tmp_path}/")

    return refused


def test_there_are_workloads() -> None:
    assert len(WORKLOADS) > 5


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.parent.name)
def test_the_same_jobs_from_csv_and_parquet(path: Path, tmp_path: Path) -> None:
    table = read_table(path, "the workload")
    profiles = next(iter(path.parent.glob("*profiles*.json")), None)
    write_table(
        tmp_path / "w.parquet", {name: column_type(name) for name in table.header}, (cells for _, cells in table.rows)
    )
    assert load_workload(tmp_path / "w.parquet", profiles).jobs == load_workload(path, profiles).jobs


def test_columns_are_typed_and_empty_cells_null(tmp_path: Path) -> None:
    types = {name: column_type(name) for name in ("job_id", "gpu_duration_s", "num_gpus", "resumes")}
    write_table(tmp_path / "w.parquet", types, [["a", "1.5", "2", ""], ["b", 3, "", " "]])
    table = pyarrow.parquet.read_table(tmp_path / "w.parquet")
    assert [str(kind) for kind in table.schema.types] == ["string", "double", "int64", "string"]
    assert table.to_pydict() == {
        "job_id": ["a", "b"],
        "gpu_duration_s": [1.5, 3.0],
        "num_gpus": [2, None],
        "resumes": [None, None],
    }


def test_many_rows_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler_sims.inputs.table_file._PIECE", 3)
    write_table(tmp_path / "w.parquet", {"job_id": str, "gpu_duration_s": float}, ([n, n + 1] for n in range(10)))
    workload = load_workload(tmp_path / "w.parquet")
    assert [job.job_id for job in workload.jobs] == [str(n) for n in range(10)]
    assert workload.lines == tuple(range(1, 11))


def cell_texts(tmp_path: Path, values: Any) -> list[str]:
    path = written(tmp_path / "w.parquet", {"job_id": values})
    return [cells[0] for _, cells in read_table(path, "the workload").rows]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pyarrow.array([4.0, 0.1, 1e10, -0.0, None, 1e-7]), ["4", "0.1", "10000000000", "0", "", "1e-7"]),
        (pyarrow.array([4.0, 0.1], pyarrow.float32()), ["4", "0.1"]),
        (pyarrow.array([Decimal("4.00"), Decimal("1.25")]), ["4", "1.25"]),
        (pyarrow.array([7, None], pyarrow.uint8()), ["7", ""]),
        (pyarrow.array([True, False, None]), ["yes", "no", ""]),
        (pyarrow.array([None, None]), ["", ""]),
        (pyarrow.array(["a,b", '"q"', "# x"], pyarrow.large_string()), ["a,b", '"q"', "# x"]),
        (pyarrow.array(["x", None, "x"]).dictionary_encode(), ["x", "", "x"]),
    ],
)
def test_cells_are_the_texts_of_csv(tmp_path: Path, values: Any, texts: list[str]) -> None:
    assert cell_texts(tmp_path, values) == texts


def test_a_program_with_a_boolean(tmp_path: Path) -> None:
    columns = {"job_id": ["a"], "model": ["resnet50"], "batch_size": [16.0], "steps": [9], "program": ["python x.py"]}
    (job,) = load_workload(written(tmp_path / "w.PARQUET", {**columns, "resumes": [True]})).jobs
    assert job.program is not None and job.program.resumes


# --- what is wrong ------------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_parquet(refused: Callable[..., str]) -> None:
    assert refused(b"job_id,gpu_duration_s\na,1\n").startswith("w.parquet: is not a Parquet file, or it is damaged: ")
    assert refused(b"").startswith("w.parquet: is not a Parquet file, or it is damaged: ")


def test_a_truncated_file(refused: Callable[..., str], tmp_path: Path) -> None:
    whole = written(tmp_path / "whole.parquet", JOB).read_bytes()
    assert refused(whole[:-20]).startswith("w.parquet: is not a Parquet file, or it is damaged: ")
    assert refused(whole[:-8]).startswith("w.parquet: is not a Parquet file, or it is damaged: ")


def test_damaged_data(refused: Callable[..., str], tmp_path: Path) -> None:
    whole = bytearray(written(tmp_path / "whole.parquet", JOB).read_bytes())
    whole[4:60] = b"\xff" * 56  # the first pages; the footer is whole
    assert refused(bytes(whole)).startswith("w.parquet: is not a Parquet file, or it is damaged: ")


def test_texts_that_are_not_utf_8(refused: Callable[..., str]) -> None:
    texts = pyarrow.Array.from_buffers(pyarrow.string(), 1, pyarrow.array([b"\xff"]).buffers())
    assert "w.parquet: is not a Parquet file, or it is damaged: " in refused({**JOB, "user": texts})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"w\.parquet: can't read the workload: No such file or directory"):
        load_workload(tmp_path / "w.parquet")


def test_columns_that_are_wrong(refused: Callable[..., str]) -> None:
    assert refused({**JOB, "gpus": [1]}, UnknownNameError).startswith("w.parquet: unknown column 'gpus'; did you mean")
    nested = refused({**JOB, "gpu_type": [["T4", "V100"]]})
    assert nested.startswith("w.parquet: gpu_type: has cells of type list<")
    assert nested.endswith("; they must be texts, numbers or booleans")
    assert "submit_s: has cells of type timestamp[us]" in refused(
        {**JOB, "submit_s": pyarrow.array([0], pyarrow.timestamp("us"))}
    )
    assert refused({"job_id": pyarrow.array([], pyarrow.string())}) == "w.parquet: has a header but no jobs"
    assert refused({}).startswith("w.parquet: is empty; ")


def test_a_column_that_is_named_twice(tmp_path: Path) -> None:
    twice = pyarrow.Table.from_arrays([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["job_id", "job_id"])
    pyarrow.parquet.write_table(twice, tmp_path / "w.parquet")
    with pytest.raises(InputError, match=r"w\.parquet: a column is named twice"):
        load_workload(tmp_path / "w.parquet")


@pytest.mark.parametrize(
    ("column", "values", "problem"),
    [
        ("num_gpus", [1, 1.5], "w.parquet, row 2: num_gpus: must be a whole number from 1 to 1000000000000, not '1.5'"),
        ("submit_s", [0.0, float("nan")], "w.parquet, row 2: submit_s: must be a number from 0 to 1e+08, not 'nan'"),
        ("submit_s", [True, None], "w.parquet, row 1: submit_s: must be a number from 0 to 1e+08, not 'yes'"),
        ("user", ["u", "a\nb"], "w.parquet, row 2: user: has a line break: 'a\\nb'"),
        ("job_id", ["a", None], "w.parquet, row 2: job_id: is missing"),
        ("job_id", ["a", "a"], "w.parquet, row 2: job_id 'a' is used twice, first in row 1"),
    ],
)
def test_a_bad_value_has_row_and_column(
    refused: Callable[..., str], column: str, values: list[Any], problem: str
) -> None:
    assert refused({"job_id": ["a", "b"], "gpu_duration_s": [1.0, 2.0], column: values}) == problem


def test_a_job_that_does_not_fit_has_its_row(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("nodes: [{name: n, gpus: 2, gpu_type: T4, cpus: 8}]")
    path = written(tmp_path / "w.parquet", {"job_id": ["a", "b"], "num_gpus": [2, 3], "gpu_duration_s": [1, 1]})
    with pytest.raises(DoesNotFitError, match=r"w\.parquet, row 2: job 'b' is larger than the cluster"):
        check_fits(load_workload(path), load_cluster(tmp_path / "c.yaml"), str(path))


@pytest.mark.parametrize(
    ("kind", "cell", "wanted"),
    [(int, "1.5", "a whole number"), (int, str(2**63), "a whole number"), (float, "x", "a number")],
)
def test_a_cell_that_its_column_can_not_have(tmp_path: Path, kind: type, cell: str, wanted: str) -> None:
    path = tmp_path / "w.parquet"
    with pytest.raises(
        InputError, match=rf"w\.parquet, row 2: steps: must be {wanted} in a Parquet file, not '{cell}'"
    ):
        write_table(path, {"steps": kind}, [["1"], [cell]])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"w\.parquet: can't be written: No such file or directory"):
        write_table(tmp_path / "none" / "w.parquet", {"job_id": str}, [["a"]])


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "w.parquet", JOB)
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"w\.parquet: needs the package pyarrow: pip install 'emugpu\[parquet\]'"):
        load_workload(path)
    with pytest.raises(InputError, match=r"new\.parquet: needs the package pyarrow"):
        write_table(tmp_path / "new.parquet", {"job_id": str}, [["a"]])
    assert list(tmp_path.iterdir()) == [path]


def test_columns_without_a_unit_are_texts_or_whole_numbers():
    measured = {name for name in COLUMNS if name.endswith(("_s", "_gib", "cpus")) or name in ("weight", "speedup")}
    assert {name for name in COLUMNS if column_type(name) is float} == measured
