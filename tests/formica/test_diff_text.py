"""The lines of a change, read back from real git's diff."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formica.adapters.change import read_change
from formica.adapters.git import Git
from formica.rules.diff_text import file_texts
from formica.rules.facts import Change, FileChange
from formica.rules.policy import Policy
from formica.rules.review import review
from tests.fakes.repositories import PATH, git


async def read(folder: Path, before: dict[str, bytes], after: dict[str, bytes | None]) -> Change:
    """The change between two commits of a repository made of these files."""
    tree = folder / "tree"
    tree.mkdir()
    git(tree, "init", "-q", "-b", "main")
    shas = []
    for files in (before, after):
        for name, data in files.items():
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink() or data is None:
                path.unlink()
            if data is not None and data.startswith(b"-> "):
                path.unlink(missing_ok=True)
                path.symlink_to(data[3:].decode())
            elif data is not None:
                path.write_bytes(data)
        git(tree, "add", "-A")
        git(tree, "commit", "-q", "--allow-empty", "-m", "one\n\nbody")
        shas.append(git(tree, "rev-parse", "HEAD"))
    return await read_change(Git(folder / "state", path=PATH), tree / ".git", shas[0], shas[1])


async def test_every_kind_of_file_is_read(tmp_path: Path) -> None:
    """Text, binary, links, odd names, lines that look like a diff, no newline at the end: all lines, numbered."""
    before = {
        "a.txt": b"one\ntwo\nthree",
        "gone.txt": b"1\n2\n",
        "kind": b"text\n",
        "data.bin": b"\0one\ntwo\n",
        "empty": b"",
        "mode.sh": b"x\n",
    }
    after: dict[str, bytes | None] = {
        "a.txt": b"one\n2\nthree\n",
        "gone.txt": None,
        "kind": b"-> a.txt",
        "data.bin": b"\0one\nsecret\n",
        "empty": b"now\n",
        'od\td "name"\n.txt': b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n\\ no newline\n",
        "new/deep.txt": b"x",
    }
    change = await read(tmp_path, before, after)
    assert set(change.texts) == {file.path for file in change.files}
    assert change.message == "one\n\nbody"
    shown = {
        path: [(row.mark, row.old, row.new, row.text) for row in text.rows]
        for path, text in change.texts.items()
    }
    assert shown["a.txt"] == [
        (" ", 1, 1, "one"),
        ("-", 2, 2, "two"),
        ("-", 3, 2, "three"),
        ("+", 4, 2, "2"),
        ("+", 4, 3, "three"),
    ]
    assert shown["gone.txt"] == [("-", 1, 1, "1"), ("-", 2, 1, "2")]
    assert [row[0] + row[3] for row in shown["kind"]] == ["-text", "+a.txt"]
    assert [row[0] + row[3] for row in shown["data.bin"]] == [" \0one", "-two", "+secret"]
    assert shown["empty"] == [("+", 1, 1, "now")]
    assert [row[3] for row in shown['od\td "name"\n.txt']][:2] == ["diff --git a/x b/x", "--- a/x"]
    assert len(shown['od\td "name"\n.txt']) == 7
    assert all(text.whole for text in change.texts.values())


async def test_git_and_we_count_the_same_lines(tmp_path: Path) -> None:
    """An ordinary change has no finding for lines that could not be read."""
    before = {f"src/{n}.py": "".join(f"line {i}\n" for i in range(50)).encode() for n in range(5)}
    after: dict[str, bytes | None] = {
        name: data.replace(b"line 7\n", b"").replace(b"line 20\n", b"line 20\nnew\nnew\n")
        for name, data in before.items()
    }
    assert review(await read(tmp_path, before, after), Policy()) == []


async def test_a_mode_alone_has_no_lines(tmp_path: Path) -> None:
    """A file whose mode changed is there, with nothing in it."""
    change = await read(tmp_path, {"a.sh": b"x\n"}, {})
    assert change.empty
    tree = tmp_path / "tree"
    (tree / "a.sh").chmod(0o755)
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "mode")
    shas = git(tree, "rev-parse", "HEAD~1", "HEAD").split()
    change = await read_change(Git(tmp_path / "state", path=PATH), tree / ".git", *shas)
    assert change.texts["a.sh"].rows == ()
    assert [finding.rule for finding in review(change, Policy())] == ["mode"]


async def test_a_huge_file_is_read_near_its_changes(tmp_path: Path) -> None:
    """Beyond the limit the lines around a change are enough, and it is said that the rest is missing."""
    line = b"x" * 1_000 + b"\n"
    before = {"data.csv": line * 20_000}
    change = await read(tmp_path, before, {"data.csv": line * 20_000 + b"end\n"})
    text = change.texts["data.csv"]
    assert not text.whole
    assert [(row.new, row.text) for row in text.added] == [(20_001, "end")]
    assert review(change, Policy()) == []


FILE = FileChange("a", "M", "100644", "100644", 1, 0, binary=False)


@pytest.mark.parametrize(
    "diff",
    [
        b"",
        b"nothing\n",
        b"diff --git a/a b/a\n@@ -1,2 +1 @@\n-a\n",
        b"diff --git a/a b/a\n@@ -1 +1 @@\n?a\n",
        b"diff --git a/a b/a\ndiff --git a/b b/b\n",
    ],
)
def test_what_is_not_the_diff_of_these_files_is_refused(diff: bytes) -> None:
    """Too few files, too many, a hunk that is too short: nothing is half read."""
    with pytest.raises(ValueError, match=r"."):
        file_texts(diff, [FILE], whole=True)


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_no_text_breaks_the_reader(noise: bytes) -> None:
    """Whatever follows a header, it is read or refused."""
    try:
        file_texts(b"diff --git a/a b/a\n@@ -1,3 +1,3 @@\n" + noise, [FILE], whole=True)
    except ValueError:
        return
