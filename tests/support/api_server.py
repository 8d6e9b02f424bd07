"""A real API server for tests, because a fake doesn't evaluate admission policies or server-side apply.

`ApiServer` starts etcd and kube-apiserver on loopback ports from a directory of binaries (`kube-apiserver`, and `etcd` or
`server`, as `go install` calls it) and stops both. There is no kubelet and no controller manager: nodes and pods are objects.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.timing.host import monotonic_ns, sleep_ns

ADMIN_TOKEN = "emugpu-test-admin"
START_S = 60.0


class ApiServer:
    """One control plane without nodes; use it as a context manager. Raises ClusterError if it doesn't start.

    `users`: user names by token, beside the administrator's; a service account's is system:serviceaccount:<namespace>:<name>.
    `flags`: further flags of the API server, or others in place of ours.
    """

    def __init__(
        self,
        assets: Path,
        directory: Path,
        users: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> None:
        self._assets, self._users, self._flags = assets, users or {}, flags or {}
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.programs: dict[str, int] = {}
        """Process ids by program name."""
        self.port = _free_port()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca_file(self) -> Path:
        return self._directory / "apiserver.crt"

    def __enter__(self) -> ApiServer:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all processes in reverse order of their start, and wait for them."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()
        self.programs.clear()

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """One request as the administrator, or as the user whom `headers` impersonate: HTTP status and decoded reply."""
        common = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": content_type}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data=data, headers={**common, **(headers or {})}, method=method
        )
        context = ssl.create_default_context(cafile=str(self.ca_file))
        try:
            with urllib.request.urlopen(request, timeout=20, context=context) as reply:
                return reply.status, _decoded(reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _decoded(error.read())

    def apply(self, path: str, body: object, manager: str = "test") -> tuple[int, Any]:
        """Server-side apply with force."""
        query = f"?fieldManager={manager}&force=true"
        return self.request("PATCH", path + query, body, content_type="application/apply-patch+yaml")

    def kubeconfig(self, token: str = ADMIN_TOKEN) -> dict[str, Any]:
        """A kubeconfig as a dictionary, for the user of `token`."""
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "default"}}],
        }

    def _start(self) -> None:
        etcd = self._start_etcd()
        key = self._directory / "service-account.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        tokens = self._directory / "tokens.csv"
        rows = [
            f'{ADMIN_TOKEN},admin,admin,"system:masters"',
            *(f"{t},{user},{user}" for t, user in self._users.items()),
        ]
        tokens.write_text("\n".join(rows) + "\n", encoding="utf-8")
        flags = {
            "etcd-servers": etcd,
            "secure-port": self.port,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "cert-dir": self._directory,
            "token-auth-file": tokens,
            "authorization-mode": "RBAC",
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-cluster-ip-range": "10.96.0.0/16",
            "endpoint-reconciler-type": "none",
            "disable-admission-plugins": "ServiceAccount",
            **self._flags,
        }
        self.run("kube-apiserver", self._assets / "kube-apiserver", flags)
        self._wait_until_ready()

    def _start_etcd(self) -> str:
        url, peer = (f"http://127.0.0.1:{_free_port()}" for _ in range(2))
        flags = {
            "name": "node0",
            "data-dir": self._directory / "etcd",
            "listen-client-urls": url,
            "advertise-client-urls": url,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"node0={peer}",
            "unsafe-no-fsync": "true",
        }
        binary = next((self._assets / name for name in ("etcd", "server") if (self._assets / name).exists()), None)
        if binary is None:
            raise ClusterError(f"{self._assets}: has neither etcd nor server; build the test binaries first")
        self.run("etcd", binary, flags)
        return url

    def run(self, name: str, binary: Path, flags: Mapping[str, object]) -> subprocess.Popen[bytes]:
        """Start another program of the control plane, which is ended with it; its output goes to <name>.log."""
        command = [str(binary), *(f"--{flag}={value}" for flag, value in flags.items())]
        environment = {**os.environ, "HOME": str(self._directory)}
        with (self._directory / f"{name}.log").open("wb") as log:
            try:
                process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            except OSError as error:
                raise ClusterError(f"{binary}: can't be started: {error.strerror}") from error
        self._processes.append(process)
        self.programs[name] = process.pid
        return process

    def _wait_until_ready(self) -> None:
        deadline = monotonic_ns() + round(START_S * NS_PER_S)
        while monotonic_ns() < deadline:
            for process in self._processes:
                if process.poll() is not None:
                    raise ClusterError(
                        f"{process.args!r} ended with {process.returncode}; see the logs in {self._directory}"
                    )
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            sleep_ns(NS_PER_S // 20)
        raise ClusterError(f"the API server was not ready within {START_S:.0f} s; see the logs in {self._directory}")


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
