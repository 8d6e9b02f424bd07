"""Which API server, user and namespace a command means: the order in which kubectl looks, for every program of this project.

1. `--kubeconfig FILE`;
2. the files that KUBECONFIG lists, merged (the first file that defines a name wins);
3. ~/.kube/config;
4. in a pod: its service account.

Source: Kubernetes documentation, "Organizing Cluster Access Using kubeconfig Files". Choosing is pure and needs no client
library; credentials.py and client.py turn the chosen entries into connections.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from emulator_runtime.domain.errors import InputError, UnknownNameError
from operators.kube.documents import object_at, objects_in, text_at

HOW = "give --kubeconfig FILE or set KUBECONFIG (`export KUBECONFIG=$(emugpu cluster kubeconfig)`)"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_FILES = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}
_REFUSED = ("as-groups", "as-uid", "as-user-extra")


def _texts(names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), str)


_JSON = object  # anything that JSON can say
_EXEC = {
    **_texts("apiVersion command interactiveMode installHint"),
    "args": [str],
    "env": [_texts("name value")],
    "provideClusterInfo": bool,
}
_USER = {
    **_texts("token tokenFile client-certificate client-certificate-data client-key client-key-data"),
    **_texts("username password as"),
    **dict.fromkeys(_REFUSED, _JSON),
    "auth-provider": {"name": str, "config": _JSON},
    "exec": _EXEC,
}
_CLUSTER = {
    **_texts("server certificate-authority certificate-authority-data tls-server-name proxy-url"),
    "insecure-skip-tls-verify": bool,
    "extensions": [{"name": str, "extension": _JSON}],
}
_FORM = {
    "current-context": str,
    "contexts": [{"name": str, "context": _texts("cluster user namespace")}],
    "clusters": [{"name": str, "cluster": _CLUSTER}],
    "users": [{"name": str, "user": _USER}],
}
"""The members that are read, and their types. Source: client-go, tools/clientcmd/api/v1, types.go."""
_TYPES = {str: "a string", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}


@dataclass(frozen=True, slots=True)
class Connection:
    """A server, a user and a namespace. `cluster` and `user` have the members of a kubeconfig; file names are absolute.

    `source`: files and context, for messages.
    """

    source: str
    context: str
    cluster: Mapping[str, Any] = field(repr=False)
    user: Mapping[str, Any] = field(repr=False)
    namespace: str = "default"

    @property
    def server(self) -> str:
        return text_at(self.cluster, "server")


def connection(
    kubeconfig: Path | None = None,
    context: str = "",
    namespace: str = "",
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """Raises InputError that names the file, flag or variable and the fix.

    `namespace` empty: the context's, else `default`.
    """
    explicit = kubeconfig is not None or bool(environ.get("KUBECONFIG"))
    files = _files(environ, kubeconfig)
    merged = _merged(files)
    if not objects_in(merged, "contexts") and not explicit and not context:
        in_pod = _in_pod(environ, service_account, namespace)
        if in_pod is not None:
            return in_pod
        raise InputError("kubeconfig", f"no cluster is configured (looked at {_listed(files)}); {HOW}")
    if explicit and not any(path.is_file() for path in files):
        raise InputError("KUBECONFIG", f"names no file that exists ({_listed(files)}); {HOW}")
    return _chosen(merged, _listed(files), context, namespace)


def from_document(
    document: Mapping[str, Any], source: str = "kubeconfig", context: str = "", namespace: str = ""
) -> Connection:
    """The connection of a context, of the current one by default. Raises InputError naming `source`."""
    return _chosen(_members(document, _FORM, f"{source}: "), source, context, namespace)


def _chosen(document: Mapping[str, Any], source: str, context: str, namespace: str) -> Connection:
    contexts = _by_name(document, "contexts")
    name = context or text_at(document, "current-context")
    if not name:
        known = ", ".join(sorted(contexts)) or "it has no contexts"
        raise InputError(source, f"names no current context; give --context ({known})")
    if name not in contexts:
        raise UnknownNameError("--context" if context else source, "context", name, contexts)
    chosen = object_at(contexts[name], "context")
    place = f"{source}: context {name}"
    cluster = _entry(document, "cluster", text_at(chosen, "cluster"), place)
    user = _entry(document, "user", text_at(chosen, "user"), place) if text_at(chosen, "user") else {}
    _check_server(text_at(cluster, "server"), text_at(cluster, "proxy-url"), place)
    return Connection(place, name, cluster, user, namespace or text_at(chosen, "namespace") or "default")


def context_names(kubeconfig: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> list[str]:
    """What --context may name. Raises InputError for a file that can't be read."""
    return sorted(_by_name(_merged(_files(environ, kubeconfig)), "contexts"))


def file_with(context: str, *, environ: Mapping[str, str] = os.environ) -> Path:
    """The first file that defines this context, of those that kubectl reads.

    Raises InputError where none does, and where kubectl, which merges the files, finds another cluster or user than in that file.
    """
    files = _files(environ, None)
    merged = _merged(files)
    for path in files:
        alone = _merged([path])
        entry = _by_name(alone, "contexts").get(context)
        if entry is None:
            continue
        for kind in ("cluster", "user"):
            name = text_at(object_at(entry, "context"), kind)
            own, known = (_by_name(document, f"{kind}s") for document in (alone, merged))
            if kind == "cluster" and name not in known:
                raise UnknownNameError(f"--context {context}", kind, name, known)
            if own.get(name) != known.get(name):
                fix = f"write one file (kubectl config view --flatten --minify --context {context}) and give --kubeconfig FILE"
                raise InputError(f"--context {context}", f"is in {path}, but its {kind} {name} in another file; {fix}")
        return path
    raise UnknownNameError("--context", "context", context, _by_name(merged, "contexts"))


def _files(environ: Mapping[str, str], kubeconfig: Path | None) -> list[Path]:
    if kubeconfig is not None:
        if not kubeconfig.is_file():
            raise InputError("--kubeconfig", f"{kubeconfig} is no file; {HOW}")
        return [kubeconfig]
    named = [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    home = environ.get("HOME") or os.path.expanduser("~")  # Path's raises an error for a user without a home directory
    return named or [Path(home) / ".kube" / "config"]


def _listed(files: Sequence[Path]) -> str:
    return ", ".join(map(str, files))


def _merged(files: Sequence[Path]) -> dict[str, Any]:
    """One document of all files that exist; of two entries with one name, and of current contexts, the first counts."""
    merged: dict[str, Any] = {"clusters": [], "contexts": [], "users": [], "current-context": ""}
    for path in files:
        document = _document(path)
        for kind in ("clusters", "contexts", "users"):
            known = _by_name(merged, kind)
            merged[kind] += [e for e in _absolute(document, kind, path.parent) if e["name"] not in known]
        merged["current-context"] = merged["current-context"] or text_at(document, "current-context")
    return merged


def _document(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        what = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(str(path), f"can't be read as a kubeconfig ({what}); {HOW}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise InputError(str(path), f"is no kubeconfig: it has no lists of clusters, contexts and users; {HOW}")
    return _members(document, _FORM, f"{path}: ")


def _members(value: Mapping[str, Any], form: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Those that `form` has; null is the same as none, as in kubectl."""
    return {
        name: _typed(value[name], each, prefix + name) for name, each in form.items() if value.get(name) is not None
    }


def _typed(value: Any, form: Any, place: str) -> Any:
    """The value, whose types are those of `form`. Raises InputError naming the place: kubectl refuses such a file as well."""
    if form is _JSON:
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(place, f"can't be written as JSON ({error}); dates need quotes") from error
        return value
    wanted, found = form if isinstance(form, type) else type(form), type(value)
    if found is not wanted:  # the value itself may be a secret
        raise InputError(place, f"must be {_TYPES[wanted]}, not {_TYPES.get(found, found.__name__)}")
    if isinstance(form, list):
        return [_typed(each, form[0], f"{place}[{index}]") for index, each in enumerate(value)]
    return _members(value, form, f"{place}.") if isinstance(form, dict) else value


def _absolute(document: Mapping[str, Any], kind: str, directory: Path) -> list[dict[str, Any]]:
    """The entries of this kind; file names in them are relative to the file's directory."""
    entries, single = [], kind.removesuffix("s")
    for entry in objects_in(document, kind):
        members = dict(object_at(entry, single))
        for name in _FILES.get(single, ()):
            if text_at(members, name):
                members[name] = str(directory.absolute() / text_at(members, name))
        plugin = object_at(members, "exec")
        if os.sep in text_at(plugin, "command"):
            members["exec"] = {**plugin, "command": str(directory.absolute() / text_at(plugin, "command"))}
        entries.append({"name": text_at(entry, "name"), single: members})
    return entries


def _by_name(document: Mapping[str, Any], kind: str) -> dict[str, Mapping[str, Any]]:
    """Entries by name, of two with one name the first."""
    return {text_at(entry, "name"): entry for entry in reversed(objects_in(document, kind))}


def _entry(document: Mapping[str, Any], kind: str, name: str, place: str) -> Mapping[str, Any]:
    entries = _by_name(document, f"{kind}s")
    if name not in entries:
        raise UnknownNameError(place, kind, name, entries)
    members = object_at(entries[name], kind)
    for member in _REFUSED:
        if members.get(member):
            raise InputError(f"{place}: {kind} {name}", f"{member} is not supported; use a user that needs no {member}")
    for member in _FILES[kind]:
        if text_at(members, member) and not Path(text_at(members, member)).is_file():
            raise InputError(f"{place}: {kind} {name}", f"{member}: {members[member]} is no file")
    return members


def _check_server(server: str, proxy: str, place: str) -> None:
    if not server.startswith(("https://", "http://")):
        raise InputError(place, f"its cluster's server must begin with https:// or http://, not be {server!r}")
    if proxy and not proxy.startswith(("https://", "http://")):
        raise InputError(place, f"proxy-url must begin with https:// or http://, not be {proxy!r}")


def _in_pod(environ: Mapping[str, str], account: Path, namespace: str) -> Connection | None:
    """The pod's own service account; None outside of a pod, or where the token isn't mounted."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port or not (account / "token").is_file():
        return None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    cluster = {"server": server, "certificate-authority": str(account / "ca.crt")}
    own = account / "namespace"
    default = own.read_text(encoding="utf-8").strip() if own.is_file() else "default"
    user = {"tokenFile": str(account / "token")}
    return Connection(f"service account {account}", "", cluster, user, namespace or default)
