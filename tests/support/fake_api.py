"""An API server in memory, for tests of controllers. It follows the rules that controllers rely on, and fails on request.

tests/operators/kube/test_api_contract.py runs the same cases against this one and against a real kube-apiserver.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping
from typing import Any

from operators.kube.api import POD, ConflictError, Json, NotThereError, Resource
from operators.kube.documents import object_at
from operators.kube.store import full_name_of
from operators.objects.selectors import parse_selector

_NO_GENERATION = ("nodes", "namespaces")
_WITH_STATUS = ("emujobs", "emugpupools", "schedulingexperiments", "jobs", "nodes", "pods")
"""Their status is only written through the status subresource."""
_OWNED = ("labels", "annotations")


class FakeApi:
    """operators.kube.api.Api in memory: selectors, versions, uids, generations, status, finalizers and forgotten versions.

    Server-side apply replaces labels, annotations and status that the same manager applied before; of the spec it sets the
    given members. Objects are known by name, or by `namespace/name`; `texts` are answers by path. `failures` are raised, one
    after the other, by the operation that they are listed under (list, watch, get, text, apply, patch, bind, create, replace,
    delete); `log` has what was written.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Json]] = {}
        self.texts: dict[str, str] = {}
        self.failures: dict[str, list[Exception]] = {}
        self.log: list[tuple[str, str, str]] = []
        self._version = 0
        self._oldest = 0
        self._changes: list[tuple[int, str, str, Json]] = []
        self._news = asyncio.Condition()

    # --- what tests do ----------------------------------------------------------------------------------------------

    def put(self, resource: Resource, document: Json) -> None:
        """Create or replace as a user would, without any check."""
        known = full_name_of(document) in self._all(resource)
        self._store(resource, "MODIFIED" if known else "ADDED", copy.deepcopy(document))

    def remove(self, resource: Resource, name: str) -> None:
        """Remove the object at once, regardless of finalizers."""
        self._store(resource, "DELETED", self._all(resource)[name])

    def stored(self, resource: Resource, name: str) -> Json:
        """The stored object."""
        return self._all(resource)[name]

    def compact(self) -> None:
        """Forget all changes until now: a watch from an older version fails with 410 Gone."""
        self._oldest = self._version
        self._changes.clear()

    async def wake(self) -> None:
        """Wake the watches."""
        async with self._news:
            self._news.notify_all()

    # --- Api --------------------------------------------------------------------------------------------------------

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        self._fail("get")
        return copy.deepcopy(self._found(resource, name, namespace))

    async def list(
        self, resource: Resource, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> tuple[str, list[Json]]:
        self._fail("list")
        found = [each for each in self._all(resource).values() if _is_selected(each, namespace, labels, fields)]
        return str(self._version), copy.deepcopy(found)

    async def text(self, path: str) -> str:
        self._fail("text")
        if path not in self.texts:
            raise NotThereError(f"get {path}: not found")
        return self.texts[path]

    async def watch(
        self, resource: Resource, version: str, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncIterator[tuple[str, Json]]:
        seen = int(version)
        while True:
            self._fail("watch")
            if seen < self._oldest:
                raise NotThereError(f"watch {resource.plural}: too old resource version: {seen} ({self._oldest})")
            for at, plural, kind, document in list(self._changes):
                if at > seen and plural == resource.plural and _is_selected(document, namespace, labels, fields):
                    yield kind, copy.deepcopy(document)
            seen = self._version
            async with self._news:
                await self._news.wait()

    async def apply(self, resource: Resource, name: str, document: Json, manager: str) -> Json:
        self._fail("apply")
        metadata = document["metadata"]
        found = self._all(resource).get(_key(metadata.get("namespace", ""), name))
        if found is None:
            if metadata.get("uid") or resource.subresource:
                raise NotThereError(f"{resource.plural} {name}: uid mismatch")
            made = copy.deepcopy(document)
            _apply_metadata(made["metadata"], metadata, manager)
            return await self._created(resource, made, "apply")
        if metadata.get("uid", found["metadata"].get("uid")) != found["metadata"].get("uid"):
            raise NotThereError(f"{resource.plural} {name}: uid mismatch")
        self._check_version(resource, metadata, found)
        merged = copy.deepcopy(found)
        if "spec" in document and not resource.subresource:
            merged["spec"] = merged.get("spec", {}) | document["spec"]
        if resource.subresource == "status":
            merged["status"] = copy.deepcopy(document.get("status", {}))
        else:
            _apply_metadata(merged["metadata"], metadata, manager)
        return await self._changed("apply", resource, found, merged)

    async def patch(self, resource: Resource, name: str, document: Json, manager: str) -> Json:
        self._fail("patch")
        metadata = document["metadata"]
        found = self._found(resource, name, metadata.get("namespace", ""))
        if metadata.get("uid", found["metadata"].get("uid")) != found["metadata"].get("uid"):
            raise NotThereError(f"{resource.plural} {name}: uid mismatch")
        self._check_version(resource, metadata, found)
        patch = document if resource.subresource == "status" else _without_status(resource, document)
        return await self._changed("patch", resource, found, _merged(found, patch))

    async def bind(self, pod: str, namespace: str, uid: str, node: str) -> None:
        self._fail("bind")
        found = self._found(POD, pod, namespace)
        if found["metadata"].get("uid") != uid or found["spec"].get("nodeName"):
            raise ConflictError(f"pods {pod}: has another uid, or a node")
        await self._changed("bind", POD, found, _merged(found, {"spec": {"nodeName": node}}))

    async def create(self, resource: Resource, document: Json, manager: str = "") -> Json:
        self._fail("create")
        if full_name_of(document) in self._all(resource):
            raise ConflictError(f"{resource.plural} {full_name_of(document)}: already exists")
        return await self._created(resource, document, "create")

    async def replace(self, resource: Resource, document: Json) -> Json:
        self._fail("replace")
        metadata = document["metadata"]
        found = self._found(resource, metadata["name"], metadata.get("namespace", ""))
        if metadata.get("uid", found["metadata"].get("uid")) != found["metadata"].get("uid"):
            raise ConflictError(f"{resource.plural} {metadata['name']}: another uid")
        self._check_version(resource, metadata, found)
        made = copy.deepcopy(_without_status(resource, document))
        if resource.plural in _WITH_STATUS and "status" in found:
            made["status"] = copy.deepcopy(found["status"])
        for name in ("uid", "generation", "deletionTimestamp"):
            if name in found["metadata"]:
                made["metadata"].setdefault(name, found["metadata"][name])
        return await self._changed("replace", resource, found, made)

    async def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        self._fail("delete")
        key = _key(namespace, name)
        found = self._all(resource).get(key)
        if found is not None and uid not in ("", found["metadata"].get("uid")):
            raise ConflictError(f"{resource.plural} {name}: another uid")
        self.log.append(("delete", resource.plural, name))
        if found is None:
            return
        if not found["metadata"].get("finalizers"):
            self.remove(resource, key)
        elif "deletionTimestamp" not in found["metadata"]:
            leaving = copy.deepcopy(found)
            leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self._store(resource, "MODIFIED", leaving)
        await self.wake()

    async def close(self) -> None:
        """Does nothing: there is no connection."""

    # --- storage ----------------------------------------------------------------------------------------------------

    async def _created(self, resource: Resource, document: Json, operation: str) -> Json:
        made = copy.deepcopy(_without_status(resource, document))
        made["metadata"].setdefault("uid", f"uid-{self._version + 1}")
        if resource.plural not in _NO_GENERATION:
            made["metadata"].setdefault("generation", 1)
        self.log.append((operation, resource.plural, made["metadata"]["name"]))
        self._store(resource, "ADDED", made)
        await self.wake()
        return copy.deepcopy(made)

    async def _changed(self, operation: str, resource: Resource, before: Json, after: Json) -> Json:
        """Store the object after a write, or remove it if the write removed the last finalizer of a deleted object."""
        metadata = after["metadata"]
        self.log.append((operation, resource.plural, metadata["name"]))
        if metadata.get("generation") and before.get("spec") != after.get("spec"):
            metadata["generation"] = before["metadata"].get("generation", 0) + 1
        gone = "deletionTimestamp" in metadata and not metadata.get("finalizers")
        if _content(before) != _content(after) or gone:  # a write that changes nothing makes no new version
            self._store(resource, "DELETED" if gone else "MODIFIED", after)
        await self.wake()
        return copy.deepcopy(after)

    def _found(self, resource: Resource, name: str, namespace: str) -> Json:
        found = self._all(resource).get(_key(namespace, name))
        if found is None:
            raise NotThereError(f"{resource.plural} {name}: not found")
        return found

    def _check_version(self, resource: Resource, metadata: Mapping[str, Any], found: Json) -> None:
        if metadata.get("resourceVersion") not in (None, "", found["metadata"]["resourceVersion"]):
            raise ConflictError(f"{resource.plural} {found['metadata']['name']}: the object has been modified")

    def _all(self, resource: Resource) -> dict[str, Json]:
        return self.objects.setdefault(resource.plural, {})

    def _store(self, resource: Resource, kind: str, document: Json) -> None:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        if kind == "DELETED":
            del self._all(resource)[full_name_of(document)]
        else:
            self._all(resource)[full_name_of(document)] = document
        self._changes.append((self._version, resource.plural, kind, copy.deepcopy(document)))

    def _fail(self, operation: str) -> None:
        pending = self.failures.get(operation)
        if pending:
            raise pending.pop(0)


def _without_status(resource: Resource, document: Json) -> Json:
    """The document after a write of the main resource."""
    ignored = "status" if resource.plural in _WITH_STATUS else ""
    return {name: value for name, value in document.items() if name != ignored}


def _apply_metadata(metadata: Json, given: Mapping[str, Any], manager: str) -> None:
    """Remove labels and annotations that this field manager applied before and doesn't name any more."""
    owned: dict[str, dict[str, Any]] = {}
    before: Mapping[str, Any] = next(
        (entry for entry in metadata.get("managedFields", ()) if entry["manager"] == manager), {}
    )
    for part in _OWNED:
        old = object_at(before, "fieldsV1", "f:metadata", f"f:{part}")
        others = {key: value for key, value in metadata.get(part, {}).items() if f"f:{key}" not in old}
        metadata[part] = {**others, **given.get(part, {})}
        owned[f"f:{part}"] = {f"f:{key}": {} for key in given.get(part, {})}
    if "finalizers" in given:
        metadata["finalizers"] = list(given["finalizers"])
    fields = {"manager": manager, "operation": "Apply", "fieldsV1": {"f:metadata": owned}}
    managers = [entry for entry in metadata.get("managedFields", ()) if entry["manager"] != manager]
    metadata["managedFields"] = [*managers, fields] if any(owned.values()) else managers


def _merged(found: Any, patch: Any) -> Any:
    """A strategic merge, as far as tests need it: maps member by member, containers by name; other lists are replaced.

    In a list, `{"$patch": "delete", "name": ...}` removes the element of this name.
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


def _content(document: Json) -> Json:
    """The object without the members that the API server sets."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "resourceVersion"}
    return {**document, "metadata": {key: value for key, value in metadata.items() if value != {} and value != []}}


def _is_selected(document: Json, namespace: str, labels: str, fields: str) -> bool:
    """Whether a list or watch with these options has the object."""
    metadata = document["metadata"]
    if namespace not in ("", "*", metadata.get("namespace", "")):
        return False
    requirements = parse_selector(labels, "labelSelector") if labels else ()
    if not all(requirement.holds(metadata.get("labels") or {}) for requirement in requirements):
        return False
    return all(_field_matches(document, part) for part in fields.split(",") if part)


def _field_matches(document: Json, requirement: str) -> bool:
    """`metadata.name=a`, or `spec.nodeName!=` for any but the empty value."""
    path, sign, wanted = requirement.partition("!=") if "!=" in requirement else requirement.partition("=")
    *parents, last = path.split(".")
    value = str(object_at(document, *parents).get(last, ""))
    return (value == wanted) is (sign == "=")


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
