"""The values that --set may change, and the messages for those that other flags determine."""

from __future__ import annotations

import pytest

from cluster_harness.request.chart_values import helm_arguments
from emulator_runtime.domain.errors import InputError


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pools[0].gpus[0].count=2", "pools come from --nodes, --gpus, --gpu-type, --pool and --node-gpus"),
        ("pools=null", "pools come from"),
        ("alias.mode=off,pools[0].name=x", "pools come from"),
        (r"a=1\,2,b={3,4},po\ols[0].name=x", "pools come from"),
        ("a={},pools[0]=x", "pools come from"),
        ("image.tag=2", "the image comes from --image"),
        ("image.repository=a", "the image comes from --image"),
        ("image=null", "the image comes from --image"),
        ("redis.image.repository=redis", "the image is built from this checkout"),
        ("redis.image=null", "the image is built from this checkout"),
    ],
)
def test_what_the_harness_sets_itself_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        helm_arguments(("alias.mode=off", text), existing=False)
    assert str(caught.value).startswith(f"--set {text}: {reason}")


@pytest.mark.parametrize("text", ["a", "=b", "a=1,b", "a=1,,b=2", ",a=1", "a={1,2"])
def test_what_sets_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        helm_arguments((text,), existing=False)
    assert str(caught.value) == f"--set {text}: must be KEY=VALUE, or several of them with commas between"


@pytest.mark.parametrize(
    "text",
    [
        "redis.maxMemory=1gb",
        "image.pullPolicy=Always",
        "redis.image.pullPolicy=Never",
        r"node.podAnnotations.a=b\,pools=1",
        "x={a,pools[0]=1}",
        "poolsize=1",
        "a=",
        "a=b=c,",
        "",
    ],
)
def test_the_rest_goes_to_helm_as_it_is(text: str) -> None:
    assert helm_arguments((text, "a=b"), existing=False) == ("--set", text, "--set", "a=b")


def test_who_has_a_cluster_chooses_its_redis() -> None:
    text = "redis.image.repository=redis,redis.image.tag=7"
    assert helm_arguments((text,), existing=True) == ("--set", text)
    with pytest.raises(InputError, match="the image comes from --image"):
        helm_arguments(("image.tag=2",), existing=True)
