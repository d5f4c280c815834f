"""Which contributions a change touches, and so which of their tests run with every change."""

from tests.autotune_tests.contrib_tests.conftest import SHARED, contributions_of

EVERY = {"classical", "exchange", "ray", "replay", "strings", "torch"}


def test_a_contribution_is_touched_by_its_sources_and_its_tests():
    assert contributions_of(["autotune/contrib/ray/ray_machine.py"]) == {"ray"}
    assert contributions_of(["tests/autotune_tests/contrib_tests/strings_tests/test_host_strings.py"]) == {"strings"}
    assert contributions_of(["autotune/exchange/export.py", "autotune/importer/operators/contrib_ops.py"]) == set()


def test_what_all_share_touches_all():
    for file in SHARED:
        assert contributions_of([file]) == EVERY
