"""The chart values that --set may change: all except those that other flags determine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from emulator_runtime.domain.errors import InputError

_POOLS = "pools come from --nodes, --gpus, --gpu-type, --pool and --node-gpus"
_IMAGE = "the image comes from --image"
_REDIS_IMAGE = (
    "the image is built from this checkout and loaded onto the nodes; only --kubeconfig leaves the choice to you"
)

_OURS = {"pools": _POOLS, "image": _IMAGE, "image.repository": _IMAGE, "image.tag": _IMAGE}
_OURS_ON_KIND = dict.fromkeys(("redis.image", "redis.image.repository", "redis.image.tag"), _REDIS_IMAGE)
_WHOLE = frozenset({"pools"})
"""Values whose members can't be set either."""


def helm_arguments(texts: Sequence[str], *, existing: bool) -> tuple[str, ...]:
    """The --set options for Helm. `existing`: on an existing cluster the user may choose the Redis image.

    Raises InputError for a value that `up` sets, and for a text that sets nothing.
    """
    ours = _OURS if existing else _OURS | _OURS_ON_KIND
    for text in texts:
        for key in _keys(text):
            reason = ours.get(key) or next((ours[name] for name in _WHOLE if re.match(rf"{name}[.\[]", key)), None)
            if reason is not None:
                raise InputError(f"--set {text}", f"{reason}; leave it out here")
    return tuple(word for text in texts for word in ("--set", text))


def _keys(text: str) -> Iterator[str]:
    r"""The paths that are set. Source: Helm, "The Format and Limitations of --set": a=1,b.c={2,3},d=4\,5. Raises InputError."""
    for part in re.finditer(r"((?:\\.|[^=,\\])*)(=(?:\{(?:\\.|[^}\\])*\}|(?:\\.|[^,\\])*))?(?:,|$)", text):
        if part[0] and not (part[1] and part[2]):
            raise InputError(f"--set {text}", "must be KEY=VALUE, or several of them with commas between")
        yield re.sub(r"\\(.)", r"\1", part[1])
