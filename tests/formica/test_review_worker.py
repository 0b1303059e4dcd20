"""What the gates find reaches the plan, and what may never leave does not, whoever approves it."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest

from formica.errors import Refused
from formica.ports import Proof
from formica.rules.pipeline import State
from formica.rules.policy import Policy
from formica.rules.secret_forms import LiveSecrets
from tests.fakes.agent import FIX, Run
from tests.fakes.repository import file_change
from tests.fakes.verifier import NOT_PROVED, PROVED
from tests.fakes.world import World

UNATTENDED = Policy(reporting_mode="proactive", auto_fix=True, dry_run="never")
SECRET = "fk_Zq7Lw2Xv9Rb4Tn6Yp1Mc3Kd5"
ENCODED = base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("=")


def a_world() -> World:
    return World(policy=UNATTENDED, secrets=LiveSecrets([SECRET]))


@pytest.mark.parametrize(
    "name", [SECRET, ENCODED, SECRET[::-1], "/".join(SECRET[n : n + 5] for n in range(0, 27, 5))]
)
async def test_a_secret_of_the_daemon_is_never_published(name: str) -> None:
    """In a file's name, in any form: the operator decides, shipit does not apply, and no plan field holds it."""
    world = a_world()
    number = world.report()
    daemon = world.daemon()
    daemon.agent.otherwise = Run(leaves=(*FIX, file_change(f"src/{name}.py", 1, 0, "A")))
    await daemon.look(number)
    plan = world.plan(number)
    assert (plan.state, plan.waiting_for) == (State.WAITING_OPERATOR, "decision")
    assert "secret of this daemon" in plan.why_waiting
    assert plan.findings
    with pytest.raises(Refused):
        await world.desk.shipit(number)
    assert (world.forge.pulls, world.remote.pushes) == ([], [])
    assert not world.secrets.holds(json.dumps(plan.model_dump(mode="json")))


async def test_a_secret_learned_after_the_approval_stops_the_push() -> None:
    """The last look before the push is at the bytes themselves, not at what the review found."""
    world = World(policy=replace(UNATTENDED, auto_fix=False))
    number = world.report()
    daemon = world.daemon()
    daemon.agent.otherwise = Run(leaves=(*FIX, file_change(f"src/{SECRET}.py", 1, 0, "A")))
    await daemon.look(number)
    await world.desk.shipit(number)
    world.secrets.add(SECRET)
    await daemon.look(number)
    assert world.plan(number).waiting_for == "decision"
    assert (world.forge.pulls, world.remote.pushes) == ([], [])


@pytest.mark.parametrize("proof", [PROVED, NOT_PROVED])
async def test_what_tests_print_cannot_carry_a_secret_into_the_plan(proof: Proof) -> None:
    """Output of the project's programs is stored without the daemon's secrets and without credentials."""
    token = "ghp_" + "R8uQ2mVx7Lw4Zp9Kc3Td6Yb1Nf5Hs0Jg2eWa"
    said = {"name": "head", "argv": ["t"], "exit_code": 0, "seconds": 1.0}
    tail = f"fine\n{ENCODED}\n{token}\nend"
    world = a_world()
    number = world.report()
    daemon = world.daemon()
    daemon.verifier.judge = lambda _: replace(
        proof, reason=f"could not be started: {SECRET}", commands=({**said, "output_tail": tail},)
    )
    await daemon.look(number)
    text = json.dumps(world.plan(number).model_dump(mode="json"))
    assert not world.secrets.holds(text)
    assert token not in text
    assert "fine" in text


async def test_the_record_of_the_session_is_in_the_plan() -> None:
    """Its name and sha256; its prompt is the one the agent was given."""
    world = a_world()
    number = world.report()
    daemon = world.daemon()
    await daemon.look(number)
    plan = world.plan(number)
    assert plan.transcript is not None
    assert plan.transcript.startswith(f"{number}-")
    assert plan.transcript_hash == "0" * 64
    assert daemon.transcripts.kept[plan.transcript] == daemon.agent.tasks[0].prompt


async def test_a_session_without_a_record_says_so() -> None:
    """A full disk does not undo the run; the plan says that nothing was recorded."""
    world = a_world()
    number = world.report()
    daemon = world.daemon()
    daemon.transcripts.full = True
    await daemon.look(number)
    plan = world.plan(number)
    assert (plan.transcript, plan.transcript_hash) == (None, None)
    assert "could not be stored" in plan.agent_reason
    assert plan.state is State.DONE


async def test_names_that_are_no_text_do_not_break_the_plan() -> None:
    """Bytes that are not UTF-8 and line ends in a file's name are shown escaped."""
    world = World(policy=replace(UNATTENDED, auto_fix=False))
    number = world.report()
    daemon = world.daemon()
    daemon.agent.otherwise = Run(leaves=(*FIX, file_change("src/\udcff\n.py", 1, 0, "A")))
    await daemon.look(number)
    plan = world.plan(number)
    json.dumps(plan.model_dump(mode="json"), ensure_ascii=False).encode("utf-8")
    assert any(entry["path"] == "src/\\xff\\n.py" for entry in plan.diff_stat)
