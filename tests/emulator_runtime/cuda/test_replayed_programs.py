"""Random programs on the core, which really wait for their devices, beside the prediction from what they called."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

from tests.support.traces import Host, run

MS = 1_000_000
STREAMS = 3
SLACK_MS = 4.0
"""What the program's own calls may take; a piece of work in the wrong place is 5 to 25 ms. No two take equally long, since then a
gap that the host makes shorter by a microsecond would no longer do for the work that fits into it."""

PROGRAM = """
import json
pinned, memory = core.allocate(1 << 20, HOST), core.allocate(1 << 20)
for program in json.loads('''{programs}'''):
    streams = [core.stream() for _ in range({streams})]
    begin, moments = core.record(core.stream()), []
    for call, stream, moment, ms in program:
        # 0.75 TB/s and 5 us for a kernel; 1 MB/s and 5 us for a copy
        if call == "launch":
            core.work(streams[stream], kind=4, bytes=(ms - 0.005) * 0.75e9)
        elif call == "in":
            core.copy(streams[stream], memory, pinned, round(ms * 1000 - 5), blocking=False)
        elif call == "out":
            core.copy(streams[stream], pinned, memory, round(ms * 1000 - 5), blocking=False)
        elif call == "mark":
            moments.append(core.record(streams[stream]))
        elif call == "wait":
            core.wait(streams[stream], moments[moment])
        else:
            core.call("emu_event_synchronize", moments[moment])
    ends = [core.record(stream) for stream in streams]
    core.call("emu_device_synchronize", 0)
    print(*(core.elapsed_ms(begin, end) for end in ends))
"""


Program = list[tuple[str, int, int, float]]


def random_program(random: Random) -> Program:
    """Calls, each with a stream, a moment that exists, and a duration."""
    program: Program = []
    moments = 0
    for _ in range(40):
        call = random.choice(["launch", "launch", "in", "out", "mark", "wait", "synchronize"])
        if call in ("wait", "synchronize") and moments == 0:
            call = "mark"
        moment = random.randrange(moments) if moments else 0
        program.append((call, random.randrange(STREAMS), moment, random.uniform(5, 25)))
        moments += call == "mark"
    return program


def predicted_ms(program: Program) -> list[float]:
    """The ends of the streams, if the program's own calls took no time."""
    host, moments = Host(), []
    for call, stream, moment, ms in program:
        if call == "launch":
            host.launch(round(ms * MS), stream)
        elif call == "in":
            host.copy(round(ms * MS), stream)
        elif call == "out":
            host.copy(round(ms * MS), stream, to=-1, source=0)
        elif call == "mark":
            moments.append(host.mark(stream))
        elif call == "wait":
            host.wait(moments[moment], stream)
        else:
            host.synchronize(moments[moment])
    ends = [host.function(0, stream) for stream in range(STREAMS)]
    (done,) = run(host)
    by_record = dict(zip(done.device_work.records, done.device_work.ends_ns, strict=True))
    return [by_record[end] / MS for end in ends]


def test_a_prediction_is_what_the_program_takes(run_core: Callable[..., str]) -> None:
    programs = [random_program(Random(f"replayed/{number}")) for number in range(30)]
    code = PROGRAM.format(programs=json.dumps(programs), streams=STREAMS)
    out = run_core(code, estimator="roofline", device={"host_link_bytes_per_s": 1e6}, warp=1)
    observed = [[float(word) for word in line.split()] for line in out.splitlines() if line[:1].isdigit()]
    assert len(observed) == len(programs)
    for program, ends_ms in zip(programs, observed, strict=True):
        for expected_ms, end_ms in zip(predicted_ms(program), ends_ms, strict=True):
            assert expected_ms - 0.1 <= end_ms <= expected_ms + SLACK_MS, program
