"""What the core makes of a sharing manager's frames. tests/sharing_manager/test_cuda_programs.py has the real manager."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.ipc.frames import Decoder, encode

Frame = dict[str, Any]
OK: Frame = {"ok": True}
UUID = "GPU-00000000-0000-0000-0000-000000000001"
MS = 1_000_000


class Manager(threading.Thread):
    """Answers each frame with those that `answer` returns for it, and keeps what it got."""

    def __init__(self, path: Path, answer: Callable[[Frame], list[Frame]]) -> None:
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen()
        self.answer = answer
        self.got: list[Frame] = []
        self.connections: list[threading.Thread] = []

    def run(self) -> None:
        with contextlib.suppress(OSError):  # closed at the test's end
            while True:
                self.connections.append(
                    threading.Thread(target=self.serve, args=(self.socket.accept()[0],), daemon=True)
                )
                self.connections[-1].start()

    def serve(self, connection: socket.socket) -> None:
        decoder = Decoder()
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(1 << 16):
                for frame in decoder.feed(data):
                    self.got.append(frame)
                    connection.sendall(b"".join(encode(reply) for reply in self.answer(frame)))

    def frames(self, op: str) -> list[Frame]:
        return [frame for frame in self.got if frame["op"] == op]


def attached(frame: Frame, mode: str = "exclusive", uuid: str = UUID) -> list[Frame]:
    """The answer to `attach`; the main session has no devices."""
    devices = [{"uuid": uuid, "index": 0, "mode": mode}] if frame["devices"] else []
    return [OK | {"version": 3, "devices": devices, "free_ns": 0}]


@pytest.fixture
def run_managed(run_core: Callable[..., str], tmp_path: Path) -> Iterator[Callable[..., Manager]]:
    """`run_managed(code, answer, **settings)`: the manager, when the program has ended."""
    started: list[Manager] = []

    def run(code: str, answer: Callable[[Frame], list[Frame]], **settings: object) -> Manager:
        path = tmp_path / "manager.sock"
        started.append(Manager(path, answer))
        started[-1].start()
        run_core(code, manager=path, token="secret", **settings)
        for connection in started[-1].connections:  # what the program sent last may not have been read yet
            connection.join(10)
        return started[-1]

    yield run
    for manager in started:
        manager.socket.close()


def test_an_error_about_a_report_is_no_answer_to_a_reservation(run_managed: Callable[..., Manager]) -> None:
    late = {"ok": False, "code": "protocol", "error": "too far ahead", "about": "report"}

    def answer(frame: Frame) -> list[Frame]:
        return attached(frame) if frame["op"] == "attach" else [late, OK] if frame["op"] == "reserve" else []

    run_managed("for _ in range(5): core.allocate(1 << 20)", answer)


def test_a_reservation_that_is_refused_is_out_of_memory(run_managed: Callable[..., Manager]) -> None:
    no = {"ok": False, "code": "out-of-memory", "error": "full", "about": "reserve"}

    def answer(frame: Frame) -> list[Frame]:
        if frame["op"] == "attach":
            return attached(frame)
        return [] if frame["op"] != "reserve" else [no] if frame["peak_bytes"] > 2 << 20 else [OK]

    run_managed(
        """
        assert core.status("emu_memory_allocate", 0, DEVICE, c_size_t(2 << 20), byref(c_void_p())) == OUT_OF_MEMORY
        core.allocate(512)
        """,
        answer,
    )


def test_a_demand_that_is_refused_loses_the_device(run_managed: Callable[..., Manager]) -> None:
    no = {"ok": False, "code": "refused", "error": "no", "about": "demand"}

    def answer(frame: Frame) -> list[Frame]:
        return attached(frame, "fifo") if frame["op"] == "attach" else [OK if frame["op"] == "reserve" else no]

    run_managed(
        """
        stream = core.stream()
        core.launch(stream)
        assert core.status("emu_stream_synchronize", stream) == LAUNCH_FAILED
        """,
        answer,
    )


def exclusive(frame: Frame) -> list[Frame]:
    return attached(frame) if frame["op"] == "attach" else [OK] if frame["op"] == "reserve" else []


def test_what_a_device_has_done_is_reported_at_the_program_s_end(run_managed: Callable[..., Manager]) -> None:
    manager = run_managed("stream = core.stream()\ncore.launch(stream, 7)\ncore.synchronize(stream)", exclusive)
    assert sum(frame["work_ns"] for frame in manager.frames("report")) == 7 * MS


def test_what_a_device_has_not_done_is_not_reported(run_managed: Callable[..., Manager]) -> None:
    """Half a minute of work is queued when the program ends."""
    began_s = time.monotonic()
    code = "stream = core.stream()\nfor _ in range(3):\n    core.launch(stream)\n    time.sleep(0.12)"
    manager = run_managed(code, exclusive, constant_ns=10_000 * MS)
    reported_ns = sum(frame["work_ns"] for frame in manager.frames("report"))
    assert 200 * MS < reported_ns < (time.monotonic() - began_s) * 1e9


def test_the_statistics_page_is_that_of_the_device_which_the_manager_names(
    run_managed: Callable[..., Manager], tmp_path: Path
) -> None:
    other = UUID.replace("1", "7")
    run_managed(
        f"""
        core.allocate(512)
        pages = [name for name in os.listdir({str(tmp_path)!r}) if "GPU" in name]
        assert len(pages) == 1 and pages[0].endswith({other!r}), pages
        """,
        lambda frame: attached(frame, uuid=other) if frame["op"] == "attach" else exclusive(frame),
    )


def test_work_that_frees_memory_when_it_ends_waits_for_no_other_thread(run_managed: Callable[..., Manager]) -> None:
    """It frees under the core's lock, which no wait within would release: the thread that asks the manager needs it."""
    reserved: list[int] = []

    def answer(frame: Frame) -> list[Frame]:
        if frame["op"] != "reserve":
            return attached(frame) if frame["op"] == "attach" else []
        reserved.append(frame["peak_bytes"])
        time.sleep(0.5 * (frame["peak_bytes"] > 2 << 20 and len(reserved) < 4))
        return [OK]

    run_managed(
        """
        import threading
        small, freed = core.allocate(1 << 20), []

        def poll(ready_ns):
            if not freed:
                freed.append(core.free(small))
            return ready_ns

        asking = threading.Thread(target=core.allocate, args=(64 << 20,), daemon=True)
        asking.start()
        time.sleep(0.2)
        core.deferred(core.stream(), poll)
        assert freed
        asking.join(5)
        assert not asking.is_alive()
        """,
        answer,
    )
    until_s = time.monotonic() + 5
    while reserved[-1] != reserved[1] + (63 << 20) and time.monotonic() < until_s:
        time.sleep(0.01)  # nobody waits for the answer to a smaller reservation
    assert reserved[-1] == reserved[1] + (63 << 20)  # the manager knows of both in the end


def test_the_manager_is_asked_for_the_device_that_is_meant(
    run_managed: Callable[..., Manager], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program's device 0 is the container's device 2."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    uuid = UUID[:-1] + "3"

    def answer(frame: Frame) -> list[Frame]:
        if frame["op"] == "demand":
            reply = {"op": "piece", "sequence": frame["sequence"], "start_ns": 0, "end_ns": frame["work_ns"]}
            return [reply]
        return (
            attached(frame, "time-slice", uuid) if frame["op"] == "attach" else [OK] if frame["op"] == "reserve" else []
        )

    manager = run_managed(
        "core.launch(core.default_stream(0)); core.synchronize(core.default_stream(0))", answer, devices=3
    )
    assert [frame["devices"] for frame in manager.frames("attach")] == [[], [2]]
    assert {frame["resource"] for frame in manager.frames("demand")} == {uuid}
