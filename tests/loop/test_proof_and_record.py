"""The proof, the gates on lines, and the session's record, with the real daemon."""

from __future__ import annotations

import json
from pathlib import Path

from tests.loop.harness import Daemon, People, Project, unattended
from tests.servers import PoolServer

SPEAKS = "print('thinking'); print('key ghp_' + 'R8uQ2mVx7Lw4Zp9Kc3Td6Yb1Nf5Hs0Jg2eWa')\n"
WEAKENS = "fix(); test(); tests.write_text(tests.read_text().replace('assertEqual(mean([1, 2, 3]), 2)', 'assertTrue(mean([1, 2, 3]))'))\n"


def test_a_weakened_test_stops_auto_fix_with_its_line(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """A fix that also loosens an old assertion is shown first, with file and line; every run's output is kept."""
    with Daemon(tmp_path / "daemon", project, server, WEAKENS, **unattended()) as daemon:
        number = people.report()["issue_number"]
        plan = people.wait_state(number, "waiting_operator")
        assert plan["waiting_for"] == "shipit"
        assert plan["findings"] == ["tests/test_stats.py:8: an assertion compares less exactly than before"]
        assert people.pull_requests() == []
        for command in plan["proof"]["commands"]:
            assert (daemon.state / command["log"]).is_file()
        assert "tests/test_stats.py:8" in daemon.say("plan", str(number))


def test_the_record_of_a_session_is_checked_when_it_is_read(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """`formica transcript N` prints prompt and output without credentials, outlives the run, and tells when it
    was altered."""
    with Daemon(tmp_path / "daemon", project, server, SPEAKS + "fix(); test()\n", **unattended()) as daemon:
        number = people.report()["issue_number"]
        plan = people.wait_state(number, "done")
        shown = daemon.say("transcript", str(number))
        assert "mean([]) raises ZeroDivisionError" in shown
        assert "thinking" in shown
        assert "ghp_" not in shown
        row = json.loads(daemon.say("transcript", str(number), "--json"))
        assert (row["state"], row["hash"]) == ("whole", plan["transcript_hash"])
        path = daemon.state / "transcripts" / plan["transcript"]
        path.write_text("nothing to see\n")
        altered = daemon.word("transcript", str(number))
        assert altered.returncode == 1
        assert "altered" in altered.stderr
