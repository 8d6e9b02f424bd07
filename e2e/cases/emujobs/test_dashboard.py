"""The API and the dashboard on a real cluster: tokens and permissions of Kubernetes, a running job, its events, the pages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cases.kube import SYSTEM, Kubectl, Object, eventually
from tests.support.browser import Browser, browser_path

STEPS, STEP_S = 200, 0.05


@pytest.fixture
def address(admin: Kubectl) -> Iterator[str]:
    """The URL of the Service, through `kubectl port-forward`."""
    command = [admin.program, "--namespace", SYSTEM, "port-forward", "service/emugpu-api", ":80"]
    environ = os.environ | {"KUBECONFIG": str(admin.kubeconfig)}
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ)
    try:
        assert program.stdout is not None
        line = program.stdout.readline()
        found = re.search(r"Forwarding from (127\.0\.0\.1:\d+)", line)
        assert found, line + program.stdout.read()
        reading = threading.Thread(target=program.stdout.read)  # kubectl prints a line for each connection
        reading.start()
        try:
            yield f"http://{found[1]}"
        finally:
            program.kill()
            reading.join()
    finally:
        program.kill()
        program.wait()
        if program.stdout is not None:
            program.stdout.close()


def asked(address: str, path: str, token: str = "", method: str = "GET") -> tuple[int, Any]:
    """The reply: HTTP status and JSON."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{address}/api/v1{path}", headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def account(kubectl: Kubectl, name: str, *verbs: str) -> str:
    """The token of a new service account that may use these verbs on EmuJobs of its namespace."""
    kubectl("create", "serviceaccount", name)
    if verbs:
        kubectl("create", "role", name, f"--verb={','.join(verbs)}", "--resource=emujobs.emugpu.dev")
        kubectl("create", "rolebinding", name, f"--role={name}", f"--serviceaccount={kubectl.namespace}:{name}")
    return kubectl("create", "token", name).strip()


def emujob(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "EmuJob",
        "metadata": {"name": name},
        "spec": {"steps": STEPS, "stepTime": f"{STEP_S}s", "memory": "1Gi", **spec},
    }


def read_phases(address: str, token: str, uid: str, after: str, namespace: str, phases: list[str]) -> None:
    """Reads the event stream until this job has succeeded; appends its phases to `phases`."""
    request = urllib.request.Request(
        f"{address}/api/v1/events?namespace={namespace}&after={after}", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=60) as stream:
        for line in stream:
            if not line.startswith(b"data: "):
                continue
            change = json.loads(line.removeprefix(b"data: "))
            if change.get("uid") == uid and change["phase"] not in phases[-1:]:
                phases.append(change["phase"])
            if phases[-1:] == ["Succeeded"]:
                return


def test_who_may_see_and_change_what(kubectl: Kubectl, address: str) -> None:
    assert asked(address, "/jobs")[0] == 401
    assert asked(address, "/jobs", "nobody's")[0] == 401
    nobody, reads = account(kubectl, "nobody"), account(kubectl, "reads", "get")
    writes = account(kubectl, "writes", "get", "patch")
    mine = f"/jobs?namespace={kubectl.namespace}"
    assert asked(address, mine, nobody)[0] == 403
    assert asked(address, "/jobs", reads)[0] == 403  # all namespaces
    kubectl.apply(emujob("held", suspend=True))
    uid = kubectl.get("emujob", "held")["metadata"]["uid"]

    def listed() -> bool:
        status, page = asked(address, mine, reads)
        assert status == 200, page
        return any(job["uid"] == uid and job["suspended"] for job in page["items"])

    eventually("the job is listed, held", listed, within_s=20)
    assert asked(address, f"/jobs/{uid}/resume", reads, "POST")[0] == 403
    assert kubectl.get("emujob", "held")["spec"]["suspend"] is True
    assert asked(address, f"/jobs/{uid}/resume", writes, "POST") == (200, {"uid": uid, "suspended": False})
    assert kubectl.get("emujob", "held")["spec"]["suspend"] is False


def test_a_job_is_told_of_as_it_runs(kubectl: Kubectl, address: str) -> None:
    token = account(kubectl, "reads", "get")
    within = f"?namespace={kubectl.namespace}"
    _, state = asked(address, f"/clusters{within}", token)
    assert state["items"][0]["devices"] >= 8
    kubectl.apply(emujob("runs"))
    uid = kubectl.get("emujob", "runs")["metadata"]["uid"]
    phases: list[str] = []
    read_phases(address, token, uid, state["items"][0]["event"], kubectl.namespace, phases)
    assert phases[-2:] == ["Running", "Succeeded"], phases

    def complete() -> Object | None:
        _, found = asked(address, f"/jobs/{uid}{within}", token)
        ended = found["job"]["jct_s"] is not None and [run["ended"] for run in found["runs"]] == ["finished"]
        return found if ended else None

    story = eventually("its story is complete", complete, within_s=20)
    (run,) = story["runs"]
    assert (run["from_step"], run["to_step"]) == (0, STEPS)
    assert run["devices"] == story["job"]["devices"] and len(run["devices"]) == 1
    assert STEPS * STEP_S <= run["to_s"] - run["from_s"] < STEPS * STEP_S + 5
    _, steps = asked(address, f"/jobs/{uid}/steps{within}", token)
    assert max(each["to_step"] for each in steps["progress"]) == STEPS
    _, occupied = asked(address, f"/occupancy{within}", token)
    assert [span["device"] for span in occupied["spans"] if span["job"] == uid] == run["devices"]


def test_pages_of_a_cluster(kubectl: Kubectl, admin: Kubectl, address: str, tmp_path: Path) -> None:
    """Needs a browser on this machine. EMUGPU_E2E_SHOTS names a directory for screenshots."""
    program = browser_path()
    if program is None:
        pytest.skip("this machine has no Chromium")
    shots = Path(os.environ.get("EMUGPU_E2E_SHOTS") or tmp_path)
    kubectl.apply(emujob("seen"))
    uid = kubectl.get("emujob", "seen")["metadata"]["uid"]
    kubectl("create", "serviceaccount", "sees")
    name = f"sees-{kubectl.namespace}"
    rights = ("--clusterrole=cluster-admin", f"--serviceaccount={kubectl.namespace}:sees")
    admin("create", "clusterrolebinding", name, *rights)
    token = kubectl("create", "token", "sees").strip()
    try:
        with Browser(program) as page:
            page.look()
            page.goto(f"{address}/sign-in#token={token}")
            page.until("location.pathname === '/'")
            for path, shown in (
                ("", "#tiles li"),
                ("nodes", "#occupancy .main-svg"),
                ("jobs", "#jobs[data-shown]"),
                (f"job?uid={uid}", "#steps .main-svg"),
                ("experiments", "#foot:not(:empty)"),
                ("policies", "#policies tbody tr"),
            ):
                page.goto(f"{address}/{path}")
                page.until(f"document.querySelector({shown!r}) !== null")
                assert page.run("document.querySelector('#trouble').hidden"), path
                page.screenshot(shots / f"cluster-{path.partition('?')[0] or 'overview'}.png")
            assert page.complaints == []
    finally:
        admin("delete", "clusterrolebinding", name)
