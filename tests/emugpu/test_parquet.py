"""Parquet files on the command line: workloads in and out, and the tables of --out beside the CSV files."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from emugpu.__main__ import main
from scheduler_sims.inputs.workload import load_workload

WORKLOAD = '# kept\njob_id,user,submit_s,gpu_duration_s,batch_size\na,u,0,30,\nb,u,0,20,\n"c, d",v,5,10,8\n'
CLUSTER = "nodes: [{name: n, count: 2, gpus: 1, gpu_type: T4, cpus: 8}]\n"
FAILING = CLUSTER + "failures: {outages: [{node: n-1, at_s: 12, down_s: 5}]}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "w.csv").write_text(WORKLOAD)
    (tmp_path / "c.yaml").write_text(CLUSTER)
    monkeypatch.chdir(tmp_path)
    assert main(["workload", "change", "w.csv", "--faster", "1", "--out", "w.parquet"]) == 0
    return tmp_path


def simulate(workload: str, *options: str) -> int:
    return main(["simulate", workload, "--cluster", "c.yaml", "--policy", "srtf", *options])


def no_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)


def assert_same_content(folder: Path, name: str) -> dict[str, str]:
    """The tables NAME.csv and NAME.parquet have the same cells. Returns the types of the columns."""
    with (folder / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = pyarrow.parquet.read_table(folder / f"{name}.parquet")
    assert table.column_names == list(rows[0]) and table.num_rows == len(rows)
    for texts, values in zip(rows, table.to_pylist(), strict=True):
        for column, value in values.items():
            text = texts[column]
            assert value is None if text == "" else type(value)(text) == value, (column, text, value)
    return {field.name: str(field.type) for field in table.schema}


def test_change_to_parquet_and_back(folder: Path) -> None:
    assert load_workload(Path("w.parquet")).jobs == load_workload(Path("w.csv")).jobs
    assert main(["workload", "change", "w.parquet", "--faster", "1", "--out", "back.csv"]) == 0
    assert "# kept\n" + Path("back.csv").read_text() == WORKLOAD


def test_a_name_that_begins_like_a_comment_stays_a_job(folder: Path) -> None:
    Path("w.csv").write_text('job_id,gpu_duration_s\n"#1",5\nb,6\n')
    for source, out in (("w.csv", "v.parquet"), ("v.parquet", "v.csv")):
        assert main(["workload", "change", source, "--faster", "1", "--out", out]) == 0
        assert [job.job_id for job in load_workload(Path(out)).jobs] == ["#1", "b"]


def test_describe_and_sweep_read_parquet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    described = []
    for workload in ("w.csv", "w.parquet"):
        capsys.readouterr()
        assert main(["workload", "describe", workload, "--cluster", "c.yaml", "--json"]) == 0
        described.append(capsys.readouterr().out)
    assert described[0] == described[1]
    options = ["--policy", "fifo", "--policy", "srtf", "--seeds", "1", "--workers", "1", "--out", "swept", "--parquet"]
    assert main(["sweep", "w.parquet", "--cluster", "c.yaml", *options]) == 0
    types = assert_same_content(folder / "swept", "results")
    assert [types[name] for name in ("load", "policy", "seed", "mean_jct_s")] == ["double", "string", "int64", "double"]
    assert_same_content(folder / "swept", "timing")


def test_generated_and_imported_workloads(folder: Path) -> None:
    for name in ("g.csv", "g.parquet"):
        assert main(["workload", "generate", "--jobs", "50", "--seed", "2", "--out", name]) == 0
    assert load_workload(Path("g.csv")).jobs == load_workload(Path("g.parquet")).jobs
    Path("t.csv").write_text("job_id,num_gpu,submit_time,duration\n0,2,10,164\n1,1,40,60\n")
    for name in ("i.csv", "i.parquet"):
        assert main(["workload", "import", "tiresias", "t.csv", "--host", "--out", name]) == 0
    assert load_workload(Path("i.csv")).jobs == load_workload(Path("i.parquet")).jobs


def test_simulate_gives_the_same_from_both_and_writes_both(folder: Path) -> None:
    Path("c.yaml").write_text(FAILING)
    assert simulate("w.csv", "--out", "one") == 0
    assert simulate("w.parquet", "--out", "two", "--parquet") == 0
    for name in ("jobs", "spans", "interruptions"):
        assert Path(f"one/{name}.csv").read_bytes() == Path(f"two/{name}.csv").read_bytes()
        assert not Path(f"one/{name}.parquet").exists()
    types = assert_same_content(folder / "two", "jobs")
    assert [types[name] for name in ("job_id", "start_s", "preemptions", "devices")] == [
        *("string", "double", "int64", "string")
    ]
    assert_same_content(folder / "two", "spans")
    assert assert_same_content(folder / "two", "interruptions")["kept_steps"] == "int64"


@pytest.mark.processes
def test_compare_writes_both(folder: Path) -> None:
    options = ["--policy", "fifo", "--warp", "--out", "out", "--parquet"]
    assert main(["compare", "w.parquet", "--cluster", "c.yaml", *options]) == 0
    assert_same_content(folder / "out", "jobs")
    assert_same_content(folder / "out", "spans")


def test_errors(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def problem(status: int) -> str:
        assert status == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert problem(simulate("w.parquet", "--parquet")) == "emugpu: --parquet: needs --out, where the tables are written"
    Path("out").mkdir()
    Path("out/jobs.parquet").write_bytes(Path("w.parquet").read_bytes())
    refused = "emugpu: --out: out/jobs.parquet is the workload of this run; choose another output folder"
    assert problem(simulate("out/jobs.parquet", "--out", "out", "--parquet")) == refused
    Path("w.csv").write_text("job_id,cpu_duration_s,batch_size\na,5,x\n")  # a cell that a job on CPUs doesn't need
    unfit = "emugpu: v.parquet, row 1: batch_size: must be a whole number in a Parquet file, not 'x'"
    assert problem(main(["workload", "change", "w.csv", "--out", "v.parquet"])) == unfit
    no_pyarrow(monkeypatch)
    for status, place in (
        (simulate("w.parquet"), "w.parquet"),
        (simulate("w.csv", "--out", "out", "--parquet"), "--parquet"),
        (main(["workload", "generate", "--out", "v.parquet"]), "v.parquet"),
    ):
        assert status == 2, place
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"emugpu: {place}: needs the package pyarrow: pip install 'emugpu[parquet]'"
        for place in ("w.parquet", "--parquet", "v.parquet")
    ]


def test_csv_files_alone_import_no_pyarrow(folder: Path) -> None:
    code = (
        "import sys; from emugpu.__main__ import main; "
        "main(['simulate', 'w.csv', '--cluster', 'c.yaml', '--policy', 'fifo', '--out', 'out']); "
        "main(['workload', 'generate', '--jobs', '5', '--out', 'g.csv']); print('pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
