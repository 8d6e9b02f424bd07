"""Which cluster is meant, as kubectl decides it: kubectl tells a plugin nothing, so the plugin reads the same files again.

--kubeconfig, else the files that KUBECONFIG lists (the first one that has a name wins), else ~/.kube/config, else the
service account of the pod that we run in. Source: Kubernetes documentation, "Organizing Cluster Access Using kubeconfig Files".
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import Cluster, Context, User
from lightkube.core.exceptions import ConfigError

from emulator_runtime.domain.errors import InputError, UnknownNameError
from operators.kube.documents import object_at, objects_in, text_at

_HOW = "give --kubeconfig FILE or set KUBECONFIG (`export KUBECONFIG=$(emugpu cluster kubeconfig)`)"
_PATHS = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}
_EXEC_API = "client.authentication.k8s.io/"


@dataclass(frozen=True, slots=True)
class Access:
    """A connection's settings and the namespace that is meant."""

    config: SingleConfig
    namespace: str


def access(
    environ: Mapping[str, str], kubeconfig: Path | None = None, context: str = "", namespace: str = ""
) -> Access:
    """Raises InputError that names the file, flag or variable and the fix."""
    files = _files(environ, kubeconfig)
    found = _merged(files)
    if not objects_in(found, "contexts") and kubeconfig is None and not context:
        inside = _in_cluster()
        if inside is not None:
            return Access(inside, namespace or inside.namespace)
        looked = ", ".join(map(str, files))
        raise InputError("kubeconfig", f"no cluster is configured (looked at {looked}); {_HOW}")
    config = _chosen(found, ", ".join(map(str, files)), context)
    return Access(config, namespace or config.namespace)


def context_names(environ: Mapping[str, str], kubeconfig: Path | None = None) -> list[str]:
    """What --context may name. Raises InputError for a file that can't be read."""
    return sorted(_named(_merged(_files(environ, kubeconfig)), "contexts"))


def _files(environ: Mapping[str, str], kubeconfig: Path | None) -> list[Path]:
    if kubeconfig is not None:
        if not kubeconfig.is_file():
            raise InputError("--kubeconfig", f"{kubeconfig} is no file; {_HOW}")
        return [kubeconfig]
    named = [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    return named or [Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"]


def _merged(files: Sequence[Path]) -> dict[str, Any]:
    """One document out of all files that are there; what is named twice is taken from the first."""
    merged: dict[str, Any] = {"clusters": [], "contexts": [], "users": [], "current-context": ""}
    for path in files:
        document = _document(path)
        for kind in ("clusters", "contexts", "users"):
            known = {entry.get("name") for entry in merged[kind]}
            merged[kind] += [e for e in _absolute(document, kind, path.parent) if e.get("name") not in known]
        merged["current-context"] = merged["current-context"] or text_at(document, "current-context")
    return merged


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(str(path), f"can't be read as a kubeconfig ({_first_line(error)}); {_HOW}") from error
    if document is not None and not isinstance(document, dict):
        raise InputError(str(path), f"is no kubeconfig: it has no clusters and contexts; {_HOW}")
    return document or {}


def _absolute(document: Mapping[str, Any], kind: str, directory: Path) -> list[dict[str, Any]]:
    """The entries of this kind; file names in them are relative to the file's directory."""
    entries, single = [], kind.removesuffix("s")
    for entry in objects_in(document, kind):
        members = dict(object_at(entry, single))
        for name in _PATHS.get(single, ()):
            if text_at(members, name):
                members[name] = str(directory.absolute() / text_at(members, name))
        entries.append({"name": entry.get("name"), single: members})
    return entries


def _chosen(found: Mapping[str, Any], files: str, context: str) -> SingleConfig:
    contexts = _named(found, "contexts")
    name = context or text_at(found, "current-context")
    if not name:
        raise InputError(
            files, f"names no current context; give --context ({', '.join(sorted(contexts)) or 'none is there'})"
        )
    if name not in contexts:
        raise UnknownNameError("--context" if context else files, "context", name, contexts)
    meant = object_at(contexts[name], "context")
    cluster, user = text_at(meant, "cluster"), text_at(meant, "user")
    clusters, users = _named(found, "clusters"), _named(found, "users")
    if cluster not in clusters:
        raise UnknownNameError(f"{files}: context {name}", "cluster", cluster, clusters)
    if user and user not in users:
        raise UnknownNameError(f"{files}: context {name}", "user", user, users)
    try:
        return SingleConfig(
            context_name=name,
            context=Context(cluster=cluster, user=user, namespace=text_at(meant, "namespace") or None),
            cluster=msgspec.convert(object_at(clusters[cluster], "cluster"), Cluster),
            user=msgspec.convert(_with_exec(object_at(users[user], "user")) if user else {}, User),
        )
    except msgspec.ValidationError as error:
        raise InputError(f"{files}: context {name}", f"its cluster or user can't be used: {error}") from error


def _named(found: Mapping[str, Any], kind: str) -> dict[str, Mapping[str, Any]]:
    return {str(entry.get("name")): entry for entry in objects_in(found, kind)}


def _with_exec(user: Mapping[str, Any]) -> Mapping[str, Any]:
    """The client library runs credential plugins of v1beta1; those of v1 answer the same, and must be told what is asked."""
    plugin = object_at(user, "exec")
    if text_at(plugin, "apiVersion") != f"{_EXEC_API}v1":
        return user
    asked = {"apiVersion": f"{_EXEC_API}v1", "kind": "ExecCredential", "spec": {"interactive": False}}
    told = {"name": "KUBERNETES_EXEC_INFO", "value": json.dumps(asked)}
    return {**user, "exec": {**plugin, "apiVersion": f"{_EXEC_API}v1beta1", "env": [*objects_in(plugin, "env"), told]}}


def _in_cluster() -> SingleConfig | None:
    try:
        return KubeConfig.from_service_account().get()
    except (ConfigError, KeyError, OSError):
        return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
