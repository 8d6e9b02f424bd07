"""The user of a connection as the client library's loader takes one: credential plugins run, token files read, both renewed.

The loader of the client library hides the errors of a plugin and doesn't pass it the cluster, which `provideClusterInfo` of
GKE's entries asks for; so plugins run here. Source: Kubernetes documentation, "Authenticating", client-go credential plugins.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

from emulator_runtime.domain.errors import ClusterError, InputError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.timing.host import monotonic_ns, wall_ns
from operators.kube.documents import object_at, objects_in, text_at
from operators.kube.kubeconfig import Connection
from operators.kube.timestamps import seconds_of

PLUGIN_S = 60.0
"""Maximum time of a credential plugin that asks nobody. Host seconds."""
_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_TOKEN_FILE_S = 60.0  # as client-go; the kubelet renews a service account's token long before it expires
_BEFORE_EXPIRY_S = 30.0
_REFRESH_S = 300.0  # OpenID Connect: the loader itself asks for a new token when the old one is about to expire


class Credentials:
    """`user` gives the entry with a token or a certificate in it; ask again where `due`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._due_s = 0.0
        self.renewable = any(connection.user.get(name) for name in ("exec", "tokenFile", "auth-provider"))

    @property
    def due(self) -> bool:
        """Whether the entry must be asked for before the next request."""
        return monotonic_ns() / NS_PER_S >= self._due_s

    def expire(self) -> None:
        """The API server refused them."""
        self._due_s = 0.0

    async def user(self) -> dict[str, Any]:
        """The user's entry without `exec` and `tokenFile`. Raises ClusterError that names the plugin or file."""
        user, lasts_s = dict(self._connection.user), inf
        plugin, file = object_at(user, "exec"), text_at(user, "tokenFile")
        if plugin:
            status = await run_plugin(plugin, self._connection.cluster, f"{self._connection.source}: exec")
            user, lasts_s = user | _as_user(status), _lasts_s(status)
        elif file:
            user["token"], lasts_s = _token(Path(file), self._connection.source), _TOKEN_FILE_S
        elif user.get("auth-provider"):
            lasts_s = _REFRESH_S
        self._due_s = monotonic_ns() / NS_PER_S + lasts_s
        return {name: value for name, value in user.items() if name not in ("exec", "tokenFile")}


async def run_plugin(plugin: Mapping[str, Any], cluster: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """The status of the ExecCredential that it prints. Raises ClusterError or InputError, in one line."""
    version, command = text_at(plugin, "apiVersion"), text_at(plugin, "command")
    if version not in _VERSIONS:
        raise InputError(f"{place}.apiVersion", f"{version!r} is not supported; use {' or '.join(_VERSIONS)}")
    if not command:
        raise InputError(f"{place}.command", "must name the program to run")
    interactive = _is_interactive(text_at(plugin, "interactiveMode"), place)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": interactive}}
    if plugin.get("provideClusterInfo"):
        info["spec"] = {"interactive": interactive, "cluster": _cluster_info(cluster, place)}
    environ = {text_at(each, "name"): text_at(each, "value") for each in objects_in(plugin, "env")}
    environ = {**os.environ, **environ, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    out = await _run(
        [command, *plugin.get("args", ())], environ, place, text_at(plugin, "installHint"), interactive=interactive
    )
    return _status(out, version, f"{place}: {command}")


async def _run(command: list[str], environ: Mapping[str, str], place: str, hint: str, *, interactive: bool) -> bytes:
    streams = {"stdin": None, "stderr": None} if interactive else {"stdin": DEVNULL, "stderr": PIPE}
    try:
        process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=PIPE, **streams)
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument, or an `env` whose name has a `=`
        fix = " ".join(hint.split()) or "install it, or correct its path"
        what = error.strerror if isinstance(error, OSError) else error
        raise ClusterError(f"{place}: {command[0]} can't be run ({what}); {fix}") from error
    try:
        async with asyncio.timeout(None if interactive else PLUGIN_S):
            out, complaint = await process.communicate()
    except TimeoutError as error:
        raise ClusterError(f"{place}: {command[0]} did not end within {PLUGIN_S:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = " ".join((complaint or b"").decode(errors="replace").split())[-200:]
        raise ClusterError(
            f"{place}: {command[0]} ended with {process.returncode}: {said or 'no message'}; log in again"
        )
    return out


def _status(out: bytes, version: str, place: str) -> Mapping[str, Any]:
    try:
        document = json.loads(out)
    except (ValueError, RecursionError) as error:
        raise ClusterError(f"{place} printed no JSON; it must print an ExecCredential") from error
    found = text_at(document, "apiVersion") if isinstance(document, dict) else ""
    if found != version:
        raise ClusterError(f"{place} answered in {found or 'no apiVersion'}, but the kubeconfig asks for {version}")
    status = object_at(document, "status")
    whole = text_at(status, "clientCertificateData") and text_at(status, "clientKeyData")
    if not (text_at(status, "token") or whole):
        raise ClusterError(f"{place} gave neither a token nor a client certificate with its key")
    return status


def _as_user(status: Mapping[str, Any]) -> dict[str, str]:
    names = {"clientCertificateData": "client-certificate-data", "clientKeyData": "client-key-data"}
    files = {
        ours: _base64(text_at(status, name).encode(errors="replace"))
        for name, ours in names.items()
        if text_at(status, name)
    }
    return ({"token": text_at(status, "token").strip()} if text_at(status, "token") else {}) | files


def _lasts_s(status: Mapping[str, Any]) -> float:
    """Seconds until the plugin must run again; without a time of expiry only when the API server refuses."""
    expires_s = seconds_of(text_at(status, "expirationTimestamp"))
    return inf if expires_s is None else max(0.0, expires_s - wall_ns() / NS_PER_S - _BEFORE_EXPIRY_S)


def _is_interactive(mode: str, place: str) -> bool:
    """Whether the plugin may ask the person at the terminal (`interactiveMode`; IfAvailable where it's missing)."""
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not terminal:
        raise ClusterError(f"{place}: the plugin must ask a person (interactiveMode Always), but there is no terminal")
    return terminal and mode != "Never"


def _cluster_info(cluster: Mapping[str, Any], place: str) -> dict[str, Any]:
    """What a plugin may know of its cluster (client.authentication.k8s.io/v1, Cluster). Raises ClusterError."""
    members = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    info = {name: cluster[name] for name in members if cluster.get(name)}
    file = text_at(cluster, "certificate-authority")
    if file and "certificate-authority-data" not in info:
        try:
            info["certificate-authority-data"] = _base64(Path(file).read_bytes())
        except OSError as error:
            raise ClusterError(f"{place}: {file} can't be read ({error.strerror})") from error
    for each in objects_in(cluster, "extensions"):
        if each.get("name") == "client.authentication.k8s.io/exec":
            info["config"] = each.get("extension")
    return info


def _token(file: Path, source: str) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ClusterError(f"{source}: the token can't be read from {file} ({error})") from error
    if not token:
        raise ClusterError(f"{source}: {file} has no token in it")
    return token


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
