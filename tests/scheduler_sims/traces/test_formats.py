"""Each format's units, what is no job in it, and its errors with row and column."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import EmuGpuError
from scheduler_sims.traces import FORMATS
from scheduler_sims.traces.job import NEVER_RAN, STILL_RAN, Entry, Source, TraceJob

Entries = Callable[..., list[Entry]]
DAY_S = 86400.0


def philly(*jobs: dict[str, object]) -> dict[str, str]:
    return {"cluster_job_log": json.dumps(list(jobs), indent=1)}


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, object]:
    detail = [{"ip": f"m{n}", "gpus": [f"gpu{i}" for i in range(count)]} for n, count in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


def logged(*attempts: dict[str, object], **others: object) -> dict[str, object]:
    job = {"status": "Pass", "vc": "vc1", "jobid": "j1", "user": "u1", "submitted_time": "2017-10-07 01:11:39"}
    return job | {"attempts": list(attempts)} | others


def test_philly_adds_up_attempts_and_takes_the_last_ones_gpus(entries: Entries) -> None:
    first = attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8)
    second = attempt("2017-10-07 01:13:30", "2017-10-08 01:13:30", 8, 4)
    (job,) = entries("philly", philly(logged(first, second)))
    assert (job.duration_s, job.gpus, job.user, job.group, job.finished) == (74 + DAY_S, 12, "u1", "vc1", True)
    assert job.submit_s == 1507338699  # 2017-10-07 01:11:39 as UTC


def test_philly_jobs_that_are_none(entries: Entries) -> None:
    still = attempt("2017-10-07 01:12:09", None, 1)
    unlogged = attempt(None, "2017-10-07 01:12:09", 1)
    found = entries("philly", philly(logged(), logged(still), logged(unlogged)))
    assert found == [NEVER_RAN, STILL_RAN, NEVER_RAN]


def test_philly_list_is_read_in_pieces(entries: Entries) -> None:
    jobs = [logged(attempt("2017-10-07 01:00:00", "2017-10-07 01:00:10", 1), jobid=f"j{n}") for n in range(600)]
    text = json.dumps(jobs)
    assert len(text) > 2 * 65536  # several pieces, so that jobs are cut
    assert [job.job_id for job in entries("philly", {"log": text})] == [f"j{n}" for n in range(600)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"jobid": "x"}', "log:1: is not a JSON list"),
        ('[{"attempts": []}', "log:1: submitted_time"),
        ("[", "log:1: is not JSON, or the file ends before its list does"),
        ('[{"attempts": 3}]', "log:1: attempts: must be a list of attempts"),
        ("[" * 100_000, "log:1: is nested too deeply"),
        ('[{"attempts": [}, {"attempts": []}]', "log:1: is not JSON, or"),
        ("[7]", "log:1: attempts: must be a list of attempts"),
        ('[{"attempts": []}]', "log:1: submitted_time: is missing"),
        (
            '[{"attempts": [{"start_time": "then"}], "submitted_time": "2017-01-01"}]',
            "log:1: start_time: must be a time such as",
        ),
        (
            '[{"attempts": [{"start_time": "2017-01-02", "end_time": "2017-01-01"}], "submitted_time": "2017-01-01"}]',
            r"log:1: attempts\[1\].end_time: is -86400 s after the start",
        ),
        (
            '[{"attempts": [{"start_time": "2017-01-01", "end_time": "2017-01-02", "detail": [3]}],'
            '"submitted_time": "2017-01-01"}]',
            r"log:1: attempts\[1\].detail: must be a list of servers",
        ),
    ],
)
def test_philly_errors(entries: Entries, text: str, problem: str) -> None:
    with pytest.raises(EmuGpuError, match=problem):
        entries("philly", {"log": text})


def test_pollux_extract_of_philly(entries: Entries) -> None:
    text = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,2,132.0,11cb48\n2017-10-09 07:01:55,0,1,0,x\n"
    job, none = entries("philly", {"philly.csv": text})
    assert (job.job_id, job.duration_s, job.gpus, job.group, none) == ("2", 66, 2, "11cb48", NEVER_RAN)


HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
ACME = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,"
    "fail_time,stop_time,duration,queue,gpu_time\n"
)


def test_helios(entries: Entries) -> None:
    rows = "1,u,v,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:37,2020-06-09 18:45:36,239,10\n"
    rows += "2,u,v,1,1,1,CANCELLED,2020-06-09 18:41:27,,,0,0\n"
    job, none = entries("helios", {"cluster_log.csv": HELIOS + rows})
    assert (job.duration_s, job.gpus, job.cpus, job.nodes, job.group, job.finished) == (239, 4, 16, 1, "v", False)
    assert none == NEVER_RAN


def test_kalos_duration_column_includes_the_queue_and_isnt_used(entries: Entries) -> None:
    row = (
        "dlc,u,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+08:00,2023-05-17 11:01:08+08:00,2023-05-17 11:01:16+08:00,"
        "2023-05-17 11:01:16+08:00,,18,10.0,1152.0\n"
    )
    (job,) = entries("acme", {"trace_kalos.csv": ACME + row})
    assert (job.duration_s, job.nodes, job.gpus) == (8, 8, 64)
    assert job.memory_gib == pytest.approx(8 * 931.32, abs=0.1)  # 1000 GB for each of 8 pods
    assert job.submit_s == 1684292458  # the zone counts: 03:00:58 UTC


PAI_JOBS = "j1,i1,u1,Terminated,100.0,900.0\nj2,i2,u2,Failed,50,60\n"


def test_pai_joins_tables_in_percent_and_gb(entries: Entries) -> None:
    tasks = (
        "j1,ps,1.0,Terminated,150.0,800.0,600.0,29.296875,,MISC\n"
        "j1,worker,2.0,Terminated,160.0,900.0,400.0,10,50.0,V100\n"
        "j2,tf,1,Failed,,,100,1,100,T4\n"
    )
    job, none = entries("pai", {"pai_job_table.csv": PAI_JOBS, "pai_task_table.csv": tasks})
    assert (job.job_id, job.user, job.submit_s, job.duration_s, job.gpus, job.cpus) == ("j1", "u1", 100, 750, 1.0, 14.0)
    assert job.memory_gib == pytest.approx((29.296875 + 20) * 1e9 / 2**30)
    assert (job.gpu_types, none) == (("V100",), NEVER_RAN)  # the type of the task without GPUs doesn't count


def test_pai_errors(entries: Entries) -> None:
    with pytest.raises(EmuGpuError, match=r"needs both tables"):
        entries("pai", {"pai_job_table.csv": PAI_JOBS})
    with pytest.raises(EmuGpuError, match=r"x.csv:1: is no table of this trace: 2 columns"):
        entries("pai", {"x.csv": "a,b\n"})
    task = "j9,tf,1,Terminated,1,2,100,1,100,T4\n"
    with pytest.raises(EmuGpuError, match=r"tasks.csv:1: job_name: j9 is not in the job table"):
        entries("pai", {"jobs.csv": PAI_JOBS, "tasks.csv": task})
    with pytest.raises(EmuGpuError, match=r"tasks.csv:1: plan_gpu: must be a number of at least 0, not 'half'"):
        entries("pai", {"jobs.csv": PAI_JOBS, "tasks.csv": task.replace(",100,T4", ",half,T4")})


def test_pai_tables_of_its_simulator(entries: Entries) -> None:
    text = "job_id,num_inst,user,submit_time,duration,num_cpu,num_gpu,gpu_type\n7,3,u,10,60,600,50,T4\n"
    (job,) = entries("pai", {"pai_job_no_estimate_100K.csv": text})
    assert (job.submit_s, job.duration_s, job.gpus, job.cpus, job.gpu_types) == (10, 60, 1.5, 18, ("T4",))


def test_openb_in_thousandths(entries: Entries) -> None:
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    rows = "p1,4000,15360,1,220,V100M16|V100M32,BE,Running,100,400,160\np2,1,1,8,1000,nan,LS,Pending,5,9,nan\n"
    job, none = entries("openb", {"openb_pod_list_default.csv": header + rows})
    assert (job.submit_s, job.duration_s, job.gpus, job.cpus, job.memory_gib) == (100, 240, 0.22, 4, 15)
    assert (job.gpu_types, none) == (("V100M16", "V100M32"), NEVER_RAN)


def test_tiresias_has_seconds_and_muri_milliseconds(entries: Entries) -> None:
    tiresias = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,4,30,100,vgg19,164,1\n"
    muri = (
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
        "resource_time_0,resource_time_1,resource_time_2,priority\n0,4,30000,100,vgg19,16,164000,0,1640,1,2,3,0\n"
    )
    (one,), (other,) = entries("tiresias", {"t.csv": tiresias}), entries("muri", {"m.csv": muri})
    assert one == other == TraceJob("0", 30.0, 164.0, 4, model="vgg19")
    with pytest.raises(EmuGpuError, match=r"t.csv:1: has no column iteration_time"):
        entries("muri", {"t.csv": tiresias})  # so that seconds aren't taken for milliseconds


def test_gavel_has_steps(entries: Entries, tmp_path: Path) -> None:
    kind = "ResNet-18 (batch size 16)"
    table = tmp_path / "throughputs.json"
    table.write_text(
        json.dumps({"v100": {f"('{kind}', 2)": {"null": 4.0, "('LM', 1)": [1, 2]}, "('LM', 1)": {"null": 0}}})
    )
    line = f"{kind}\tpython3 main.py\t--num_steps\t1\t200\t2\t1.5\t-1\t30.5\n"
    (job,) = entries("gavel", {"a.trace": line}, durations=table, gpu="v100")
    assert job == TraceJob("1", 30.5, 50.0, 2, model=kind, weight=1.5)
    for text, options, problem in (
        (line, {}, "--durations: is missing: this format has steps"),
        (line, {"durations": table, "gpu": "k80"}, "--gpu: unknown GPU type 'k80'"),
        (
            line.replace("\t2\t", "\t4\t"),
            {"durations": table, "gpu": "v100"},
            "a.trace:1: job_type: .* on 4 GPUs is not in",
        ),
        ("LM\tc\ts\t1\t9\t1\t1\t-1\t0\n", {"durations": table, "gpu": "v100"}, "its throughput is 0"),
        (line + "LM\tc\n", {"durations": table, "gpu": "v100"}, "a.trace:2: has 7 cells too few"),
        (line, {"durations": Path(__file__), "gpu": "v100"}, "is no table of throughputs"),
    ):
        with pytest.raises(EmuGpuError, match=problem):
            entries("gavel", {"a.trace": text}, **options)


def test_pollux_durations_are_measured_steps_until_the_last_epoch(entries: Entries, tmp_path: Path) -> None:
    folder = tmp_path / "traces" / "bert"
    folder.mkdir(parents=True)
    (folder / "validation-12.csv").write_text("iteration,metric\n50,1\n100,2\n")
    (folder / "validation-24.csv").write_text("iteration,metric\n30,1\n60,2\n")
    (folder / "scalability.csv").write_text("num_nodes,num_replicas,local_bsz,step_time,sync_time\n3,12,2,0.9,0.5\n")
    (folder / "placements.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n1,4,1.0,0.2\n1,8,2.0,0.2\n24,2,0.5,0.1\n"
    )
    workload = "name,time,application,num_replicas,batch_size\na,5,bert,1,12\nb,6,bert,6,12\nc,7,bert,12,18\n"
    one, six, twelve = entries("pollux", {"w.csv": workload}, durations=tmp_path / "traces")
    # 12 on one GPU don't fit into a step of 8: two of 6, of 1.5 s each, whose synchronisation counts once.
    assert one.duration_s == pytest.approx(100 * (1.5 + (1.5 - 0.2)))
    assert six.duration_s == pytest.approx(100 * 0.5)
    assert twelve.duration_s == pytest.approx(80 * 0.9)  # 18 is halfway between 12 and 24
    with pytest.raises(EmuGpuError, match=r"w.csv:2: batch_size: 99 on 1 GPUs is outside what was measured of bert"):
        entries("pollux", {"w.csv": workload.replace(",12\n", ",99\n", 1)}, durations=tmp_path / "traces")
    with pytest.raises(EmuGpuError, match=r"application: gpt is none of bert"):
        entries("pollux", {"w.csv": workload.replace("bert", "gpt")}, durations=tmp_path / "traces")
    with pytest.raises(EmuGpuError, match=r"has no validation-BATCH.csv"):
        entries("pollux", {"w.csv": workload}, durations=tmp_path)


def test_bad_rows_are_named_or_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "job_id,num_gpu,submit_time,duration\n0,1,0,5\n1,x,0,5\n2,1.5,0,5\n3,1,0\n4,2,nan,7\n5,2,1,1e999\n6,8.0,3,7\n"
    )
    with pytest.raises(
        EmuGpuError, match=r"t.csv:3: num_gpu: must be a number of at least 0, not 'x'; correct it, or use --skip-bad"
    ):
        list(FORMATS["tiresias"].read(Source([path])))
    source = Source([path], skip_bad=True)
    found = list(FORMATS["tiresias"].read(source))
    assert [(job.job_id, job.gpus) for job in found if isinstance(job, TraceJob)] == [("0", 1), ("6", 8)]
    assert source.bad == 5
    assert source.first_bad.endswith("t.csv:3: num_gpu: must be a number of at least 0, not 'x'")


def test_several_files_of_jobs_with_the_same_ids(entries: Entries) -> None:
    text = "job_id,num_gpu,submit_time,duration\n0,1,0,5\n"
    assert [job.job_id for job in entries("tiresias", {"a.csv": text, "b.csv": text})] == ["1-0", "2-0"]


def test_compressed_and_unreadable_files(tmp_path: Path) -> None:
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(b"job_id,num_gpu,submit_time,duration\n0,1,0,5\n"))
    assert len(list(FORMATS["tiresias"].read(Source([packed])))) == 1
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(packed.read_bytes()[:-9])
    latin = tmp_path / "latin.csv"
    latin.write_bytes(b"job_id,num_gpu,submit_time,duration\n\xe9,1,0,5\n")
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    for path in (cut, latin, empty, tmp_path / "none.csv", tmp_path):
        with pytest.raises(EmuGpuError, match=path.name):
            list(FORMATS["tiresias"].read(Source([path])))


@pytest.mark.parametrize("name", FORMATS)
def test_any_table_that_is_another_one_is_an_input_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(EmuGpuError):
        list(FORMATS[name].read(Source([path])))
