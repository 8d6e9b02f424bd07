from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing_manager.kubernetes.cgroup import PodCgroup, parse_all

UID = "2c48913c-b29f-11e7-9350-020968147796"
OTHER = "72f7f152-440c-66ac-9084-e0fc1d8a910c"
FLAT = UID.replace("-", "_")
STATIC = "b1e89a2fcc688644de3eb95aee8025ce"
CID = "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"
CID2 = "b2a102854b4969b2ce98dc329c86b4fb2b06e4ad2cc8da9d8a7578c9cd2004a2"

SAMPLES = {
    "v2, systemd, containerd, burstable": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{FLAT}.slice/cri-containerd-{CID}.scope",
        (UID, CID),
    ),
    "v2, systemd, guaranteed": (f"0::/kubepods.slice/kubepods-pod{FLAT}.slice/cri-containerd-{CID}.scope", (UID, CID)),
    "v2, systemd, cri-o, cgroup below the container's": (
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{FLAT}.slice/crio-{CID}.scope/container",
        (UID, CID),
    ),
    "v2, systemd, docker": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{FLAT}.slice/docker-{CID}.scope",
        (UID, CID),
    ),
    "v2, cgroupfs": (f"0::/kubepods/besteffort/pod{UID}/{CID}", (UID, CID)),
    "v2, cgroupfs, guaranteed": (f"0::/kubepods/pod{UID}/{CID}", (UID, CID)),
    "v2, cgroupfs, cri-o": (f"0::/kubepods/burstable/pod{UID}/crio-{CID}", (UID, CID)),
    "v2, read from another cgroup namespace, cgroupfs": (f"0::/../../pod{UID}/{CID}", (UID, CID)),
    "v2, read from another cgroup namespace, systemd": (
        f"0::/../../kubepods-burstable-pod{FLAT}.slice/cri-containerd-{CID}.scope",
        (UID, CID),
    ),
    "v2, another quality of service": (f"0::/../../../burstable/pod{UID}/{CID}", (UID, CID)),
    "kind, systemd": (
        "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        f"kubelet-kubepods-burstable-pod{FLAT}.slice/cri-containerd-{CID}.scope",
        (UID, CID),
    ),
    "kind in Docker, cgroupfs": (f"0::/docker/{CID2}/kubelet/kubepods/burstable/pod{UID}/{CID}", (UID, CID)),
    "static pod": (f"0::/kubepods/burstable/pod{STATIC}/{CID}", (STATIC, CID)),
    "kubelet systemd, containerd cgroupfs": (
        f"0::/system.slice/containerd.service/kubepods-burstable-pod{FLAT}.slice:cri-containerd:{CID}",
        (UID, CID),
    ),
    "deleted": (f"0::/kubepods/burstable/pod{UID}/{CID} (deleted)", (UID, CID)),
    "the pod's own cgroup": (f"0::/kubepods/burstable/pod{UID}", (UID, "")),
    "cri-o's monitor is no container": (
        f"0::/kubepods.slice/kubepods-pod{FLAT}.slice/crio-conmon-{CID}.scope",
        (UID, ""),
    ),
    "v1": (
        f"12:cpu,cpuacct:/kubepods/burstable/pod{UID}/{CID}\n11:memory:/kubepods/burstable/pod{UID}/{CID}\n"
        f"1:name=systemd:/kubepods/burstable/pod{UID}/{CID}",
        (UID, CID),
    ),
    "hybrid: the unified hierarchy says nothing": (
        f"2:cpu:/kubepods/pod{UID}/{CID}\n1:name=systemd:/kubepods/pod{UID}/{CID}\n0::/system.slice/containerd.service",
        (UID, CID),
    ),
    "hybrid: only one hierarchy knows the container": (
        f"2:cpu:/kubepods/pod{UID}\n1:name=systemd:/kubepods/pod{UID}/{CID}",
        (UID, CID),
    ),
    "a laptop": ("0::/user.slice/user-1000.slice/session-2.scope", None),
    "a container without Kubernetes": (f"0::/docker/{CID}", None),
    "podman's pod": (f"0::/machine.slice/machine-libpod_pod_{CID}.slice/libpod-{CID2}.scope", None),
    "root": ("0::/", None),
    "nothing": ("", None),
    "only QoS": ("0::/kubepods.slice/kubepods-burstable.slice", None),
    "no UID": ("0::/kubepods/burstable/podNOTAUID/" + CID, None),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_real_samples(name: str) -> None:
    text, expected = SAMPLES[name]
    found = next(iter(parse_all(text + "\n")), None)
    assert (found and (found.pod_uid, found.container_id)) == expected


def test_the_outermost_pod_comes_first() -> None:
    """A container that may make cgroups can pretend below its own, never above."""
    text = f"0::/kubepods/burstable/pod{UID}/{CID}/docker/{CID2}/kubelet/kubepods/pod{OTHER}/{CID2}"
    assert parse_all(text) == (PodCgroup(UID, CID), PodCgroup(OTHER, CID2))


uids = st.uuids().map(str)
ids = st.text("0123456789abcdef", min_size=64, max_size=64)
layouts = st.sampled_from(
    [
        "/kubepods/{qos}pod{uid}/{cid}",
        "/../../pod{uid}/{cid}",
        "/kubelet/kubepods/{qos}pod{uid}/crio-{cid}",
        "/kubepods.slice/kubepods-{dash}pod{flat}.slice/cri-containerd-{cid}.scope",
        "/kubelet.slice/kubelet-kubepods-{dash}pod{flat}.slice/docker-{cid}.scope/sub",
        "/system.slice/containerd.service/kubepods-{dash}pod{flat}.slice:cri-containerd:{cid}",
    ]
)


@given(uids, ids, layouts, st.sampled_from(["", "burstable", "besteffort"]), st.lists(st.sampled_from(["1:cpu", "0:"])))
def test_whatever_the_layout_the_ids_come_back(uid: str, cid: str, layout: str, qos: str, before: list[str]) -> None:
    path = layout.format(
        uid=uid, flat=uid.replace("-", "_"), cid=cid, qos=f"{qos}/" if qos else "", dash=f"{qos}-" if qos else ""
    )
    text = "\n".join([f"{prefix}:/init.scope" for prefix in before] + [f"4:memory:{path}"])
    assert parse_all(text) == (PodCgroup(uid, cid),)


@given(st.text())
def test_any_text_is_parsed_without_an_error(text: str) -> None:
    for pod in parse_all(text):
        assert pod.pod_uid in text.replace("_", "-") and pod.container_id in text
