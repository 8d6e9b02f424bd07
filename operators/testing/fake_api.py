"""An API server in memory, which fails where it is told to: for the controllers' own failure paths."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

from operators.kube.api import POD, ConflictError, NotThereError, Resource
from operators.kube.store import full_name_of


class FakeApi:
    """operators.kube.Api in memory. An apply replaces labels, annotations and status that the same manager applied before.

    Objects are known by name, or by `namespace/name`; `texts` are answers by path. `failures` are raised, one after the
    other, by the operation that they are listed under (list, watch, get, text, apply, patch, bind, create, replace, delete);
    `log` has what was written.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = {}
        self.texts: dict[str, str] = {}
        self.failures: dict[str, list[Exception]] = {}
        self.log: list[tuple[str, str, str]] = []
        self._version = 0
        self._changes: list[tuple[int, str, str, dict[str, Any]]] = []
        self._news = asyncio.Condition()

    def put(self, resource: Resource, document: dict[str, Any]) -> None:
        """Create or replace, as a user would."""
        found = self._all(resource)
        name = full_name_of(document)
        self._store(resource, "MODIFIED" if name in found else "ADDED", copy.deepcopy(document))

    def remove(self, resource: Resource, name: str) -> None:
        self._store(resource, "DELETED", self._all(resource)[name])

    def stored(self, resource: Resource, name: str) -> dict[str, Any]:
        """The object itself."""
        return self._all(resource)[name]

    async def get(self, resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
        self._fail("get")
        found = self._all(resource).get(_key(namespace, name))
        if found is None:
            raise NotThereError(f"{_plural(resource)} {name}: not found")
        return copy.deepcopy(found)

    async def list(self, resource: Resource, **options: Any) -> tuple[str, list[dict[str, Any]]]:
        self._fail("list")
        found = [each for each in self._all(resource).values() if _is_within(each, options)]
        return str(self._version), copy.deepcopy(found)

    async def text(self, path: str) -> str:
        self._fail("text")
        if path not in self.texts:
            raise NotThereError(f"get {path}: not found")
        return self.texts[path]

    async def watch(
        self, resource: Resource, version: str, **options: Any
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        seen = int(version)
        while True:
            self._fail("watch")
            for at, plural, kind, document in list(self._changes):
                if at > seen and plural == _plural(resource) and _is_within(document, options):
                    yield kind, copy.deepcopy(document)
            seen = self._version
            async with self._news:
                await self._news.wait()

    async def wake(self) -> None:
        """Let the watches look."""
        async with self._news:
            self._news.notify_all()

    async def apply(self, resource: Resource, name: str, document: dict[str, Any], manager: str) -> dict[str, Any]:
        self._fail("apply")
        found = self._all(resource).get(_key(document["metadata"].get("namespace", ""), name))
        if found is None or document["metadata"].get("uid", found["metadata"].get("uid")) != found["metadata"].get(
            "uid"
        ):
            raise NotThereError(f"{_plural(resource)} {name}: uid mismatch")
        self._check_version(resource, document, found)
        merged = copy.deepcopy(found)
        metadata = merged["metadata"]
        owned: dict[str, dict[str, Any]] = {}
        before = next((m for m in metadata.get("managedFields", ()) if m["manager"] == manager), None)
        for part in ("labels", "annotations"):
            given = document["metadata"].get(part, {})
            old = before["fieldsV1"]["f:metadata"].get(f"f:{part}", {}) if before else {}
            kept = {k: v for k, v in metadata.get(part, {}).items() if f"f:{k}" not in old}
            metadata[part] = {**kept, **given}
            owned[f"f:{part}"] = {f"f:{key}": {} for key in given}
        if "spec" in document:
            merged["spec"] = merged.get("spec", {}) | document["spec"]
        if "status" in document:
            merged["status"] = document["status"]
        else:
            fields = {"manager": manager, "operation": "Apply", "fieldsV1": {"f:metadata": owned}}
            others = [m for m in metadata.get("managedFields", ()) if m["manager"] != manager]
            metadata["managedFields"] = [*others, fields] if any(owned.values()) else others
        self.log.append(("apply", _plural(resource), name))
        self._store(resource, "MODIFIED", merged)
        await self.wake()
        return copy.deepcopy(merged)

    async def patch(self, resource: Resource, name: str, document: dict[str, Any], manager: str) -> dict[str, Any]:
        self._fail("patch")
        metadata = document["metadata"]
        found = self._all(resource).get(_key(metadata.get("namespace", ""), name))
        if found is None:
            raise NotThereError(f"{_plural(resource)} {name}: not found")
        if metadata.get("uid", found["metadata"].get("uid")) != found["metadata"].get("uid"):
            raise ConflictError(f"{_plural(resource)} {name}: uid mismatch")
        self._check_version(resource, document, found)
        self.log.append(("patch", _plural(resource), name))
        self._store(resource, "MODIFIED", _merged(found, document))
        await self.wake()
        return copy.deepcopy(self._all(resource)[_key(metadata.get("namespace", ""), name)])

    async def bind(self, pod: str, namespace: str, uid: str, node: str) -> None:
        self._fail("bind")
        found = self._all(POD).get(_key(namespace, pod))
        if found is None:
            raise NotThereError(f"pods {pod}: not found")
        if found["metadata"].get("uid") != uid or found["spec"].get("nodeName"):
            raise ConflictError(f"pods {pod}: is another one, or has a node")
        self.log.append(("bind", "pods", pod))
        self._store(POD, "MODIFIED", _merged(found, {"spec": {"nodeName": node}}))
        await self.wake()

    async def create(self, resource: Resource, document: dict[str, Any], manager: str = "") -> dict[str, Any]:
        self._fail("create")
        if full_name_of(document) in self._all(resource):
            raise ConflictError(f"{_plural(resource)} {full_name_of(document)}: already exists")
        self.log.append(("create", _plural(resource), document["metadata"]["name"]))
        made = copy.deepcopy(document)
        made["metadata"].setdefault("uid", f"uid-{self._version + 1}")
        self._store(resource, "ADDED", made)
        return copy.deepcopy(made)

    async def replace(self, resource: Resource, document: dict[str, Any]) -> dict[str, Any]:
        self._fail("replace")
        found = self._all(resource).get(full_name_of(document))
        if found is None:
            raise NotThereError(f"{_plural(resource)} {full_name_of(document)}: not found")
        self._check_version(resource, document, found)
        self.log.append(("replace", _plural(resource), document["metadata"]["name"]))
        self._store(resource, "MODIFIED", copy.deepcopy(document))
        return copy.deepcopy(self._all(resource)[full_name_of(document)])

    async def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        self._fail("delete")
        key = _key(namespace, name)
        found = self._all(resource).get(key)
        if found is not None and uid not in ("", found["metadata"].get("uid")):
            raise ConflictError(f"{_plural(resource)} {name}: another uid")
        self.log.append(("delete", _plural(resource), name))
        if found is not None:
            self.remove(resource, key)

    async def close(self) -> None:
        """Nothing is open."""

    def _check_version(self, resource: Resource, document: dict[str, Any], found: dict[str, Any]) -> None:
        version = document["metadata"].get("resourceVersion")
        if version not in (None, "", found["metadata"]["resourceVersion"]):
            raise ConflictError(f"{_plural(resource)} {full_name_of(document)}: the object has been modified")

    def _all(self, resource: Resource) -> dict[str, dict[str, Any]]:
        return self.objects.setdefault(_plural(resource), {})

    def _store(self, resource: Resource, kind: str, document: dict[str, Any]) -> None:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        if kind == "DELETED":
            del self._all(resource)[full_name_of(document)]
        else:
            self._all(resource)[full_name_of(document)] = document
        self._changes.append((self._version, _plural(resource), kind, copy.deepcopy(document)))

    def _fail(self, operation: str) -> None:
        pending = self.failures.get(operation)
        if pending:
            raise pending.pop(0)


def _merged(found: Any, patch: Any) -> Any:
    """A strategic merge as far as it is needed: maps member by member, containers by name, other lists replaced.

    In a list, `{"$patch": "delete", "name": ...}` takes the element of this name away.
    """
    if isinstance(found, dict) and isinstance(patch, dict):
        merged = {key: copy.deepcopy(value) for key, value in found.items()}
        for key, value in patch.items():
            if value is None:
                merged.pop(key, None)
            elif key == "containers":
                given = {container["name"]: container for container in value}
                merged[key] = [_merged(each, given.get(each["name"], {})) for each in found[key]]
            elif isinstance(value, list) and any("$patch" in each for each in value if isinstance(each, dict)):
                gone = {each["name"] for each in value}
                merged[key] = [each for each in found.get(key, []) if each["name"] not in gone]
            else:
                merged[key] = _merged(found.get(key), value)
        return merged
    return copy.deepcopy(patch) if not isinstance(patch, dict) else _merged({}, patch)


def _is_within(document: dict[str, Any], options: dict[str, Any]) -> bool:
    """Whether a list with these options has the object; labels are not looked at."""
    return options.get("namespace", "*") in ("*", document["metadata"].get("namespace", ""))


def _plural(resource: Resource) -> str:
    return resource.plural


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
