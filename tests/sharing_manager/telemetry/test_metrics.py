from __future__ import annotations

import http.client
import threading
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from emulator_runtime.domain.errors import ClusterError, ManagerUnavailableError
from emulator_runtime.domain.gpu import Device
from sharing_manager.grants.identity import PodIdentity
from sharing_manager.kubernetes.border import BorderStatus
from sharing_manager.telemetry import web as web_module
from sharing_manager.telemetry.metrics import border_figures, store_figures
from sharing_manager.telemetry.model import DeviceTelemetry, NodeTelemetry, ProcessTelemetry
from sharing_manager.telemetry.web import Web, ask

GIB = 1024**3
DEVICE = Device("n1", 3, "A100-SXM4-80GB", 80 * GIB)
POD = PodIdentity("uid", "cid", "team-a", "train", "main", "job/0")
STORE = SimpleNamespace(connected=False, backlog_rows=7, backlog_bytes=700, oldest_age_s=2.5, merged=3, lost=1)


def telemetry() -> NodeTelemetry:
    processes = (
        ProcessTelemetry("g1", "job/0", 41, POD, 2 * GIB, 3_000_000_000),
        ProcessTelemetry("g2", "job/0", 42, POD, 1 * GIB, 1_500_000_000),
        ProcessTelemetry("g3", "local", 0, None, 5, 6),
    )
    device = DeviceTelemetry(
        device=DEVICE,
        resource="emugpu.dev/emuGPU",
        replicas=4,
        healthy=False,
        reason="XID 79",
        used_bytes=3 * GIB,
        utilisation=0.625,
        leased_ns=4_500_000_000,
        processes=processes,
    )
    return NodeTelemetry(
        at_ns=1,
        devices=(device,),
        leases_total=12,
        request_lag_ns=2_000_000,
        request_lag_max_ns=1_000_000,
        connections=3,
        attached=2,
        pending_attaches=1,
        attach_failures={"refused": 4, "protocol": 1},
        rejected_total=8,
        paused_total=9,
    )


@pytest.fixture
def web(poller):
    """A running server; what /readyz waits for is in `.missing`, what telemetry does in `.telemetry`."""
    state = SimpleNamespace(missing="", telemetry=telemetry, at_ns=1)
    figures = lambda: [*border_figures(BorderStatus("bad", "", 2, 1)), *store_figures(STORE)]  # noqa: E731
    web = Web(0, poller, lambda: state.telemetry(), figures, lambda: state.missing, now_ns=lambda: state.at_ns)
    web.start()
    web.state = state
    yield web
    web.stop()
    web.stop()


def get(web: Web, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """By name and the labels after the device's."""
    return {
        (
            sample.name,
            tuple(v for k, v in sample.labels.items() if k not in ("gpu", "uuid", "gpu_type", "resource")),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_prometheus_gets(web) -> None:
    status, text = get(web, "/metrics")
    found = samples(text)
    assert status == 200
    assert {name: value for (name, labels), value in found.items() if not labels and name.startswith("emugpu_")} == {
        "emugpu_device_utilisation_ratio": 0.625,
        "emugpu_device_memory_used_bytes": 3 * GIB,
        "emugpu_device_memory_total_bytes": 80 * GIB,
        "emugpu_device_healthy": 0,
        "emugpu_device_processes": 3,
        "emugpu_device_leased_seconds_total": 4.5,
        "emugpu_leases_total": 12,
        "emugpu_late_demands_total": 0,
        "emugpu_lease_request_lag_seconds_total": 0.002,
        "emugpu_lease_request_lag_max_seconds": 0.001,
        "emugpu_connections": 3,
        "emugpu_attached": 2,
        "emugpu_pending_attaches": 1,
        "emugpu_connections_turned_away_total": 8,
        "emugpu_connections_held_total": 9,
        "emugpu_kubernetes_events_queued": 2,
        "emugpu_kubernetes_events_dropped_total": 1,
        "emugpu_inventory_valid": 0,
        "emugpu_kubelet_up": 1,
        "emugpu_redis_up": 0,
        "emugpu_event_backlog": 7,
        "emugpu_event_backlog_bytes": 700,
        "emugpu_event_backlog_age_seconds": 2.5,
        "emugpu_events_merged_total": 3,
        "emugpu_events_lost_total": 1,
    }
    assert f'gpu="3",gpu_type="A100-SXM4-80GB",resource="emugpu.dev/emuGPU",uuid="{DEVICE.uuid}"' in text
    assert found["emugpu_attach_failures_total", ("refused",)] == 4
    assert found["process_resident_memory_bytes", ()] > 1_000_000


def test_holders_of_equal_labels_are_one_series(web) -> None:
    found = samples(get(web, "/metrics")[1])
    pod = [value for (_, labels), value in found.items() if "train" in labels]
    assert sorted(pod) == [4.5, 3 * GIB]
    nobody = {name for (name, labels) in found if "local" in labels}
    assert nobody == {"emugpu_process_memory_used_bytes", "emugpu_process_leased_seconds_total"}
    text = get(web, "/metrics")[1]
    assert 'namespace="team-a",pod="train"' in text and text.count('namespace="team-a"') == 2


def test_a_new_snapshot_for_each_second(web) -> None:
    assert "emugpu_leases_total 12.0" in get(web, "/metrics")[1]
    later = telemetry()
    web.state.telemetry = lambda: type(later)(**{k: getattr(later, k) for k in later.__slots__} | {"leases_total": 13})
    assert "emugpu_leases_total 12.0" in get(web, "/metrics")[1]
    web.state.at_ns += 1_000_000_000
    assert "emugpu_leases_total 13.0" in get(web, "/metrics")[1]


def test_ready_once_nothing_is_missing(web) -> None:
    web.state.missing = "no inventory yet"
    assert get(web, "/readyz") == (503, "no inventory yet\n")
    web.state.missing = ""
    assert get(web, "/readyz") == (200, "ok\n") == get(web, "/healthz?verbose=1")
    assert get(web, "/")[0] == 404


def test_an_event_loop_that_hangs_does_not_look_alive(web, poller, monkeypatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(web_module, "ask", lambda poller, question: asked.append(0.1) or ask(poller, question, 0.1))
    hang = threading.Event()
    poller.call_soon(lambda: hang.wait(10) and None)
    try:
        for path in ("/healthz", "/readyz", "/metrics"):
            status, text = get(web, path)
            assert (status, text) == (503, "the manager's event loop has not answered for 0.1 s\n")
        assert len(asked) == 3
        assert get(web, "/metrics")[0] == 503
        assert len(asked) == 3  # who asks next needn't wait for the loop as well
    finally:
        hang.set()
    assert get(web, "/healthz")[0] == 200


def test_the_answer_comes_from_the_pollers_thread_or_its_error_does(poller) -> None:
    assert ask(poller, lambda: threading.current_thread().name) != threading.current_thread().name
    with pytest.raises(ZeroDivisionError):
        ask(poller, lambda: 1 / 0)
    blocked = threading.Event()
    poller.call_soon(lambda: blocked.wait(10) and None)
    with pytest.raises(ManagerUnavailableError, match=r"has not answered for 0\.05 s"):
        ask(poller, lambda: None, 0.05)
    blocked.set()


def test_a_port_that_is_taken_is_named(web, poller) -> None:
    other = Web(web.port, poller, telemetry, list, lambda: "")
    with pytest.raises(
        ClusterError, match=rf"port {web.port}: can't listen there \(Address already in use\); set EMUGPU"
    ):
        other.start()
