"""All unmet requirements of a command in one message, with the command that installs what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from cluster_harness.requirements.host import Host
from cluster_harness.requirements.requirements import REQUIREMENTS, Missing
from cluster_harness.requirements.work import Work
from emulator_runtime.domain.errors import ClusterError


def missing(host: Host, work: Work) -> list[Missing]:
    """What the host lacks for the work, in the order of REQUIREMENTS."""
    needed = (requirement for requirement in REQUIREMENTS if requirement.needed(host, work))
    return [found for requirement in needed if (found := requirement.check(host, work))]


def require(host: Host, work: Work) -> None:
    """Raises ClusterError that names everything that is missing."""
    if found := missing(host, work):
        raise ClusterError(message(host, work, found))


def message(host: Host, work: Work, found: Sequence[Missing]) -> str:
    """A line for each missing thing, then how to get them."""
    things = "one thing is" if len(found) == 1 else f"{len(found)} things are"
    lines = [f"{things} missing for {work.purpose}; nothing was started:"]
    lines += [f"  {one.name}: {one.problem}" for one in found]
    lines += [f"  to mend {one.name}: {one.fix}" for one in found if one.fix]
    if packages := sorted({package for one in found for package in one.packages}):
        lines.append(f"  to install: {_install(host, packages)}")
    return "\n".join(lines)


def _install(host: Host, packages: Iterable[str]) -> str:
    names = " ".join(packages)
    if "apt-get" not in host.programs:
        return f"with your package manager, by the names of Debian's packages: {names}"
    return f"{'' if host.is_root else 'sudo '}apt-get install -y {names}"


def files_of(work: Work) -> list[Path]:
    """The paths whose existence the requirements check."""
    checkout = [work.checkout / "images"] if work.checkout else []
    chart = [work.chart / "Chart.yaml"] if work.chart else []
    return [*checkout, *chart, *([work.kubeconfig] if work.kubeconfig else [])]
