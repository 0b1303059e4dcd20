"""What lies in the state folder may be spoilt; the daemon starts all the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from formica.adapters.state_folder import hold, read_hint, write_hint
from formica.errors import Retryable


def a_folder(path: Path) -> None:
    path.mkdir()
    (path / "x").write_text("x")


def a_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("spoil", [a_folder, a_link, os.mkfifo])
def test_what_is_no_plain_file_says_nothing_and_is_replaced(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    """A folder, a link or a pipe in the place of a hint neither blocks nor leads elsewhere."""
    hint = tmp_path / "subscription.json"
    spoil(hint)
    assert read_hint(hint) == ""
    write_hint(hint, "mine")
    assert read_hint(hint) == "mine"
    assert hint.is_file()
    assert not hint.is_symlink()


def test_the_owner_survives_a_restart_and_a_spoilt_file(tmp_path: Path) -> None:
    """The same UUID after a clean restart, a fresh one where the file says nothing."""
    with hold(tmp_path / "state") as first:
        pass
    with hold(tmp_path / "state") as second:
        assert second == first
    (tmp_path / "state" / "owner").unlink()
    os.mkfifo(tmp_path / "state" / "owner")
    with hold(tmp_path / "state") as third:
        assert third != first


def test_one_process_holds_a_folder(tmp_path: Path) -> None:
    """A second holder is told to try elsewhere."""
    with (
        hold(tmp_path / "state"),
        pytest.raises(Retryable, match="another formica"),
        hold(tmp_path / "state"),
    ):
        pass
