"""What the configured commands need of the host, found without running anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from formica.adapters.toolchain import ToolchainFinder, system_folders


def program(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def link(path: Path, target: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter with its prefix, below nobody's home."""
    prefix = tmp_path / "pythons" / "3.12"
    program(prefix / "lib" / "python3.12" / "os.py")
    return program(prefix / "bin" / "python3")


def shown(home: Path, *words: object, path: str = "", private: tuple[Path, ...] = ()) -> list[Path]:
    finder = ToolchainFinder(list(map(str, words)), path=path, home=home, private=private)
    return list(finder.find().folders)


def test_absolute_words_are_shown_at_their_own_paths(home: Path) -> None:
    """Every word of a command that is an absolute path, a file of home too; other words and missing ones not."""
    script = program(home / "tools" / "agent.py")
    data = home / "data"
    data.mkdir()
    assert shown(home, "python3", script, data, home / "missing", "--flag=/etc") == [data, script]


def test_folders_of_path_are_shown(home: Path) -> None:
    """Each folder of PATH, also below home; the system's are there anyway."""
    tool = program(home / ".cargo" / "bin" / "tool")
    assert shown(home, path=f"/usr/bin:{tool.parent}:relative:") == [tool.parent]


def test_a_virtual_environment_brings_its_interpreter(home: Path, python: Path) -> None:
    """The environment's prefix, and by pyvenv.cfg and link the prefix it was made from."""
    environment = home / "venv"
    link(environment / "bin" / "python", python)
    (environment / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    expected = [environment, python.parents[1]]
    assert shown(home, environment / "bin" / "python") == expected
    assert shown(home, path=str(environment / "bin")) == expected


def test_a_script_brings_the_interpreter_of_its_first_line(home: Path, python: Path) -> None:
    """`#!/prefix/bin/python3` needs that prefix, whatever PATH says."""
    script = program(home / "bin" / "tool", f"#!{python} -u\n")
    assert python.parents[1] in shown(home, path=str(script.parent))


def test_a_link_brings_what_it_leads_to(home: Path) -> None:
    """A program that is a link into a package needs the package; a single file needs itself."""
    modules = home / ".npm" / "lib" / "node_modules"
    script = program(modules / "tool" / "cli.js", "#!/usr/bin/env node\n")
    binary = program(home / "share" / "versions" / "2.1")
    link(home / ".local" / "bin" / "tool", script)
    link(home / ".local" / "bin" / "other", binary)
    assert shown(home, path=str(home / ".local" / "bin")) == [home / ".local" / "bin", modules, binary]


def test_links_of_the_systems_folders_are_followed(home: Path) -> None:
    """What /usr/bin holds itself needs nothing, and nothing of home comes with it."""
    assert [path for path in shown(home, path="/usr/bin:/bin") if path.is_relative_to(home)] == []


@pytest.mark.parametrize("wide", ["/", "home", "above", ".local"])
def test_a_word_that_would_show_home_is_left_out(home: Path, wide: str) -> None:
    """The whole host, the home folder, what holds it, or all of ~/.local: not shown, and said."""
    (home / ".local").mkdir()
    path = {"/": Path("/"), "home": home, "above": home.parent, ".local": home / ".local"}[wide]
    link(home.parent / "alias", path)
    for word in (path, home.parent / "alias"):
        finder = ToolchainFinder([str(word)], path="", home=home)
        assert finder.find().folders == ()
        assert len(finder.find().left_out) == 1


def test_a_prefix_that_is_home_is_not_taken(home: Path) -> None:
    """~/bin is shown, home with its lib is not, even when it looks like an install prefix."""
    tool = program(home / "bin" / "tool")
    program(home / "lib" / "python3.12" / "os.py")
    assert shown(home, path=str(tool.parent)) == [tool.parent]


def test_nothing_private_is_shown(home: Path, tmp_path: Path) -> None:
    """The state folder, and what lies in it, is no toolchain, even by a link."""
    state = tmp_path / "state"
    planted = program(state / "items" / "1" / "tree" / "tool")
    link(home / "bin" / "tool", planted)
    assert shown(home, state, planted, path=str(home / "bin"), private=(state,)) == [home / "bin"]


def test_a_changed_folder_is_looked_at_again(home: Path) -> None:
    """A tool that updated itself while the daemon runs is found."""
    folder = home / "bin"
    link(folder / "tool", program(home / "versions" / "1"))
    finder = ToolchainFinder([], path=str(folder), home=home)
    assert home / "versions" / "1" in finder.find().folders
    (folder / "tool").unlink()
    link(folder / "tool", program(home / "versions" / "2"))
    os.utime(folder, ns=(1, 1))
    assert home / "versions" / "2" in finder.find().folders
    assert home / "versions" / "1" not in finder.find().folders


def test_rustup_finds_its_toolchains_without_home(home: Path) -> None:
    """The launcher's own folder is shown, and a variable tells where it is."""
    program(home / ".cargo" / "bin" / "rustup")
    (home / ".rustup").mkdir()
    found = ToolchainFinder([], path=str(home / ".cargo" / "bin"), home=home).find()
    assert found.folders == (home / ".cargo" / "bin", home / ".rustup")
    assert found.variables == {"RUSTUP_HOME": str(home / ".rustup")}


def test_the_systems_folders_are_links_or_folders() -> None:
    """/usr is one of them, and each link leads somewhere in the root."""
    folders = system_folders()
    assert folders[Path("/usr")] == ""
    assert all((Path("/") / target).is_dir() for target in folders.values())
