"""`python -m operators.api`: settings, what it doesn't import, its data; and tokens on a real API server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError, UnknownNameError
from operators.api.__main__ import main
from operators.api.authentication.access import Principal
from operators.api.authentication.token_reviews import ReviewAccess
from operators.api.replies.policies import bundled_policies
from operators.api.settings import Settings
from operators.kube.client import KubeApi
from operators.kube.kubeconfig import connection
from tests.support.api_server import ApiServer


def test_help_lists_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "EMUGPU_API_RESULTS_URL" in capsys.readouterr().out


def test_it_takes_no_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["now"]) == 2
    assert "takes no arguments" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "value"), [("PORT", "http"), ("SESSION_S", "1"), ("PORT", "70000")])
def test_a_wrong_setting_is_named(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"EMUGPU_API_{name}", value)
    assert main([]) == 2
    assert f"EMUGPU_API_{name}: must be a whole number" in capsys.readouterr().err


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(UnknownNameError, match="EMUGPU_API_PROT"):
        Settings.from_env({"EMUGPU_API_PROT": "1"})
    assert issubclass(UnknownNameError, InputError)


def test_what_runs_in_the_cluster_imports_no_scheduler() -> None:
    """The operator's image has neither the schedulers nor NumPy, and of plotly only the JavaScript."""
    code = "import sys, operators.api.__main__; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"scheduler_sims", "numpy", "scipy", "plotly", "rich", "emugpu"} & set(done.stdout.split())


def test_the_policies_are_up_to_date() -> None:
    """If not: python charts/generate.py."""
    from emugpu.commands.policies import describe_policies

    assert [asdict(policy) for policy in bundled_policies()] == json.loads(json.dumps(describe_policies()))


# --- on a real API server ------------------------------------------------------------------------------------------------------

ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "reads", "namespace": "default"},
    "rules": [{"apiGroups": ["emugpu.dev"], "resources": ["emujobs"], "verbs": ["get"]}],
}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "reads", "namespace": "default"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reads"},
    "subjects": [
        {"kind": "User", "name": "system:serviceaccount:emugpu:emugpu-nobody", "apiGroup": "rbac.authorization.k8s.io"}
    ],
}


def access_over(server: ApiServer, token: str, path: Path) -> tuple[KubeApi, ReviewAccess]:
    path.write_text(json.dumps(server.kubeconfig(token)), encoding="utf-8")
    api = KubeApi(connection(path))
    return api, ReviewAccess(api, lambda: 0)


def test_tokens_and_rights_of_a_real_cluster(cluster: ApiServer, tmp_path: Path) -> None:
    """The chart's own roles are enough to ask; the answers are Kubernetes'."""
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    assert cluster.apply(f"{rbac}/roles/reads", ROLE)[0] in (200, 201)
    assert cluster.apply(f"{rbac}/rolebindings/reads", BINDING)[0] in (200, 201)

    async def story() -> None:
        api, access = access_over(cluster, "emugpu-api", tmp_path / "kubeconfig")
        try:
            assert await access.authenticate("nobody's") is None
            nobody = await access.authenticate("emugpu-nobody")
            assert nobody is not None and nobody.user == "system:serviceaccount:emugpu:emugpu-nobody"
            admin = await access.authenticate("emugpu-test-admin")
            assert admin is not None and "system:masters" in admin.groups
            rights: list[tuple[Principal, str, str, bool]] = [
                (admin, "list", "", True),
                (admin, "patch", "default", True),
                (nobody, "get", "default", True),
                (nobody, "list", "", False),
                (nobody, "get", "emugpu", False),
                (nobody, "patch", "default", False),
            ]
            for who, verb, namespace, allowed in rights:
                assert await access.may(who, verb, namespace) is allowed, (who.user, verb, namespace)
        finally:
            await api.close()

    asyncio.run(story())


def test_who_may_not_review_says_so(cluster: ApiServer, tmp_path: Path) -> None:
    from emulator_runtime.domain.errors import ClusterError

    async def story() -> None:
        api, access = access_over(cluster, "emugpu-nobody", tmp_path / "kubeconfig")
        try:
            with pytest.raises(ClusterError, match="RBAC"):
                await access.authenticate("emugpu-nobody")
        finally:
            await api.close()

    asyncio.run(story())


def test_a_job_is_held_on_a_real_api_server(cluster: ApiServer, tmp_path: Path) -> None:
    from operators.api.model.changes import Changes
    from operators.api.sources.cluster import ClusterSource, Naming

    emujob: dict[str, Any] = {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "EmuJob",
        "metadata": {"name": "held", "namespace": "default"},
        "spec": {"steps": 10, "model": "resnet50", "batchSize": 64},
    }
    path = "/apis/emugpu.dev/v1alpha1/namespaces/default/emujobs"
    status, made = cluster.request("POST", path, emujob)
    assert status == 201, made

    async def story() -> None:
        api, _ = access_over(cluster, "emugpu-api", tmp_path / "kubeconfig")
        source = ClusterSource(api, Changes("e"), lambda: 0, Naming("test"))
        working = asyncio.create_task(source.run())
        try:
            uid = made["metadata"]["uid"]
            async with asyncio.timeout(20):
                while source.snapshot().job(uid) is None:
                    await asyncio.sleep(0.05)
                for suspended in (True, False):
                    await source.suspend(uid, suspended=suspended)
                    spec = cluster.request("GET", f"{path}/held")[1]["spec"]
                    assert (spec["suspend"], spec["steps"]) == (suspended, 10)
        finally:
            working.cancel()
            await asyncio.wait([working])
            await api.close()
            cluster.request("DELETE", f"{path}/held")

    asyncio.run(story())
