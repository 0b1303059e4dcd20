"""The record of a session: kept apart from the workspace, private, redacted, and checked when it is read."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from functools import partial
from pathlib import Path

import anyio
import pytest

from formica.adapters.transcripts import TranscriptFolder, read_transcript
from formica.app import transcript
from formica.ports import Transcript
from formica.rules.plan import Plan
from formica.rules.plan_text import plan_markdown, printable
from formica.rules.secret_forms import LiveSecrets
from formica.settings import Settings, load

SECRET = "fk_Zq7Lw2Xv9Rb4Tn6Yp1Mc3Kd5"
TOKEN = "ghp_" + "R8uQ2mVx7Lw4Zp9Kc3Td6Yb1Nf5Hs0Jg2eWa"
RUN = "7a1e5b1c-0000-4000-8000-000000000001"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "agent.log"
    path.write_text("first\nlast\n")
    return path


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "formica.toml"
    path.write_text("[daemon]\nstate = 'state'\n")
    return load(path)


def folder_of(settings: Settings, **options: object) -> TranscriptFolder:
    return TranscriptFolder(settings.state_folder / "transcripts", LiveSecrets([SECRET]), **options)  # type: ignore[arg-type]


def keep(folder: TranscriptFolder, number: int, prompt: str, log: Path) -> Transcript | None:
    return anyio.run(partial(folder.keep, number, RUN, prompt=prompt, log_path=log))


def plan(**fields: object) -> Plan:
    return Plan(issue_entity_id="ent_7", issue_number=7, name="formica", **fields)  # type: ignore[arg-type]


def test_prompt_and_output_are_kept_for_the_owner_alone(settings: Settings, log: Path) -> None:
    """`<issue>-<run id>.log`, mode 0600 in a 0700 folder, with the sha256 that goes into the plan."""
    kept = keep(folder_of(settings), 7, "do this", log)
    assert kept is not None
    path = settings.state_folder / "transcripts" / kept.name
    assert kept.name == f"7-{RUN}.log"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == kept.hash
    text = path.read_text()
    assert text.index("do this") < text.index("first\nlast\n")
    log.unlink()
    assert read_transcript(path.parent, kept.name) == (text, kept.hash)


def test_no_secret_is_kept(settings: Settings, log: Path) -> None:
    """Not the daemon's own, in any form, and no credential by its shape; the rest stays."""
    encoded = base64.b64encode(SECRET.encode()).decode()
    log.write_text(f"before\nplain {SECRET}\nencoded {encoded}\nmine {TOKEN}\n{SECRET[::-1]}\nafter\n")
    kept = keep(folder_of(settings), 7, f"key {SECRET}", log)
    assert kept is not None
    text = (settings.state_folder / "transcripts" / kept.name).read_text()
    assert not LiveSecrets([SECRET]).holds(text)
    assert TOKEN not in text
    assert "before" in text
    assert "after" in text


def test_a_large_log_is_kept_whole(settings: Settings, log: Path) -> None:
    """Piece by piece, with nothing lost between the pieces, whatever its lines look like."""
    lines = [f"{number} " + "x" * (number % 3_000) for number in range(1_500)]
    log.write_text("\n".join(lines))
    kept = keep(folder_of(settings), 7, "p", log)
    assert kept is not None
    text = (settings.state_folder / "transcripts" / kept.name).read_text()
    assert text.endswith("\n".join(lines))
    log.write_bytes(b"\xff\x00" * 2_500_000)
    assert keep(folder_of(settings), 8, "p", log) is not None


def test_a_log_that_is_not_there_or_a_link_is_said(settings: Settings, log: Path, tmp_path: Path) -> None:
    """A run without a log still has its prompt on record, and nothing is read through a link."""
    (tmp_path / "private").write_text("private words")
    link = tmp_path / "link.log"
    link.symlink_to(tmp_path / "private")
    for path in (link, tmp_path / "missing"):
        kept = keep(folder_of(settings), 7, "p", path)
        assert kept is not None
        text = (settings.state_folder / "transcripts" / kept.name).read_text()
        assert "could not be read" in text
        assert "private words" not in text


def test_a_disk_that_will_not_have_it_is_no_failure_of_the_run(settings: Settings, log: Path) -> None:
    """The work goes on without a record, and the plan says that there is none."""
    settings.state_folder.mkdir(parents=True)
    (settings.state_folder / "transcripts").write_text("in the way")
    assert keep(folder_of(settings), 7, "p", log) is None


def test_old_records_go_by_age_and_by_size(settings: Settings, log: Path) -> None:
    """Too old, or the oldest beyond the total; the one just made always stays, other files are left alone."""
    folder = settings.state_folder / "transcripts"
    now = 1_000 * 86_400.0
    records = folder_of(settings, days=10, total_bytes=10_000, wall_clock=lambda: now)
    for number, age in ((1, 11), (2, 9), (3, 8), (4, 7)):
        assert keep(records, number, "x" * 4_000, log)
        at = now - age * 86_400
        os.utime(folder / f"{number}-{RUN}.log", (at, at))
    (folder / "notes.txt").write_text("mine")
    os.utime(folder / "notes.txt", (0, 0))
    assert keep(records, 5, "x" * 4_000, log)
    assert sorted(path.name.partition("-")[0] for path in folder.iterdir()) == ["4", "5", "notes.txt"]


def test_reading_checks_the_hash(settings: Settings, log: Path) -> None:
    """Whole, altered, gone, elsewhere or never made: each is told apart."""
    kept = keep(folder_of(settings), 7, "do this", log)
    assert kept is not None
    known = plan(transcript=kept.name, transcript_hash=kept.hash, host="beta", home="other")
    row = transcript(settings, known)
    assert (row["state"], row["says"]) == ("whole", "")
    assert "do this" in row["text"]
    path = settings.state_folder / "transcripts" / kept.name
    path.write_text("nothing to see")
    row = transcript(settings, known)
    assert row["state"] == "altered"
    assert kept.hash in row["says"]
    path.unlink()
    row = transcript(settings, known)
    assert (row["state"], row["text"]) == ("elsewhere", None)
    assert "beta" in row["says"]
    owner = "7a1e5b1c-0000-4000-8000-00000000000a"
    (settings.state_folder / "owner").write_text(owner)
    known.home = owner
    assert transcript(settings, known)["state"] == "gone"
    assert transcript(settings, plan())["state"] == "none"
    known.transcript = "../../etc/passwd"
    assert transcript(settings, known)["text"] is None
    json.dumps(row)


def test_a_terminal_shows_it_without_doing_it() -> None:
    """What an agent printed cannot move the cursor, change a title or hide a line."""
    assert printable("a\x1b[2Jb\r\n\tc\u202e\x07") == "a\\x1b[2Jb\\r\n\tc\\u202e\\x07"


def test_the_plan_shows_record_proof_and_findings() -> None:
    """Record and its sha256, each command with its output's place, each finding with file and line."""
    command = {
        "name": "head",
        "exit_code": 1,
        "reason": "exited",
        "seconds": 1.25,
        "log": "items/7/run/verify-01-head.log",
    }
    text = plan_markdown(
        plan(
            transcript=f"7-{RUN}.log",
            transcript_hash="f" * 64,
            findings=["src/a.py:3: looks like a token"],
            proof={"proved": False, "reason": "no", "commands": [command]},
        )
    )
    for shown in (
        "formica transcript 7",
        "f" * 64,
        "- src/a.py:3: looks like a token",
        "- head: exit 1 after 1.2 s, output in items/7/run/verify-01-head.log",
    ):
        assert shown in text
