"""Builds Go programs and shows how many packages are done, since a first build of Kubernetes takes minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster_harness.shell import Shell
from cluster_harness.steps import Progress, Report
from emulator_runtime.domain.errors import ClusterError

_COMPILED_ALREADY = "not installed but available in build cache"
_LIST = "{{.Stale}} {{.DepOnly}} {{.StaleReason}}"
_DOWNLOADING = "go: downloading "


@dataclass(frozen=True)
class BuildPlan:
    """What a build still has to do: `packages` to compile (those in Go's build cache are done), `programs` to link."""

    packages: int
    programs: int


def go_install(
    shell: Shell, module: Path, packages: Sequence[str], linker_flags: str, target: Path, report: Report
) -> None:
    """Builds static programs of the Go module at `module` into `target`. Raises ClusterError with Go's last lines.

    First Go lists the packages, for which it downloads modules; then it compiles and links. Both report their progress.
    """
    shell = shell.with_env(CGO_ENABLED="0", GOFLAGS="-mod=readonly", GOBIN=str(target))
    flags = ("-trimpath", "-ldflags", linker_flags)
    try:
        plan = _plan(shell, module, (*flags, *packages), report)
        _build(shell, module, (*flags, *packages), plan, target, report)
    except ClusterError as error:
        raise ClusterError(f"{error}; is the Go module proxy reachable (`go env GOPROXY`)?") from error


def _plan(shell: Shell, module: Path, arguments: Sequence[str], report: Report) -> BuildPlan:
    listed: list[str] = []
    modules = 0

    def read(line: str) -> None:
        nonlocal modules
        if line.startswith(_DOWNLOADING):
            modules += 1
            report(Progress(modules, None, "modules downloaded", line.removeprefix(_DOWNLOADING)))
        else:
            listed.append(line)

    shell.stream("go", "list", "-deps", "-f", _LIST, *arguments, on_line=read, cwd=module)
    return plan_of(listed)


def plan_of(lines: Sequence[str]) -> BuildPlan:
    """Parses the output of `go list`: for each package whether it is stale, only a dependency, and why it is stale."""
    packages = programs = 0
    for line in lines:
        stale, dependency, reason = (*line.split(" ", 2), "", "")[:3]
        packages += stale == "true" and reason != _COMPILED_ALREADY
        programs += dependency == "false"
    return BuildPlan(packages, programs)


def _build(shell: Shell, module: Path, arguments: Sequence[str], plan: BuildPlan, target: Path, report: Report) -> None:
    compiled, current = 0, ""

    def show() -> None:
        linked = sum(1 for path in target.iterdir() if path.is_file())
        done = min(compiled, plan.packages) + min(linked, plan.programs)
        detail = current if compiled < plan.packages else f"{linked} of {plan.programs} programs are linked"
        report(Progress(done, plan.packages + plan.programs, "packages and programs", detail))

    def read(line: str) -> None:
        nonlocal compiled, current
        if is_package(line):
            compiled, current = compiled + 1, line
            show()

    shell.stream("go", "install", "-v", *arguments, on_line=read, on_idle=show, cwd=module)


def is_package(line: str) -> bool:
    """Whether a line of `go install -v` names a package that is being compiled; others are notes and errors."""
    return bool(line) and " " not in line and not line.startswith(("#", "go:", "\t"))
