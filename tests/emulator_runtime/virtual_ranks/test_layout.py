from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.virtual_ranks.layout import ORDER, Layout


def test_one_rank_stands_for_each_pipeline_stage() -> None:
    """Megatron's order: 2 tensor-parallel ranks side by side, 3 replicas of them, then the next stage."""
    layout = Layout.of_text("tp=2,pp=2,dp=3", ORDER, 12)
    assert layout.place(9) == {"tp": 1, "cp": 1 - 1, "ep": 0, "dp": 1, "pp": 1}
    assert layout.stands_for() == {0: tuple(range(6)), 6: tuple(range(6, 12))}
    assert [layout.role(rank) for rank in (0, 6)] == ["stage 0", "stage 1"]


def test_stages_may_be_the_fastest_axis() -> None:
    assert Layout.of_text("pp=2", "pp-dp", 6).stands_for() == {0: (0, 2, 4), 1: (1, 3, 5)}


def test_without_stages_one_rank_stands_for_all() -> None:
    layout = Layout.of_text("tp=4", ORDER, 8)
    assert layout.sizes["dp"] == 2
    assert layout.stands_for() == {0: tuple(range(8))}
    assert layout.role(0) == "all"


def test_the_largest_published_job_has_64_roles() -> None:
    roles = Layout.of_text("tp=8,pp=64,dp=6", ORDER, 3072).stands_for()
    assert list(roles) == list(range(0, 3072, 48))
    assert all(len(ranks) == 48 for ranks in roles.values())


@pytest.mark.parametrize(
    ("text", "order", "message"),
    [
        ("tp=2,pp=2,dp=3", ORDER, "are 12 ranks, not 8"),
        ("tp=3", ORDER, "are 3 ranks, not 8"),
        ("tp=2,tp=2", ORDER, "names tp twice"),
        ("xp=2", ORDER, "there is no axis xp"),
        ("tp", ORDER, "must be axes with sizes"),
        ("tp=0", ORDER, "must be axes with sizes"),
        ("tp=two", ORDER, "must be axes with sizes"),
        ("tp=8", "tp-tp-pp", "must name each axis once"),
        ("tp=8", "tp-dp", "pp among them"),
    ],
)
def test_what_is_no_layout_of_8_ranks(text: str, order: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Layout.of_text(text, order, 8)
