"""What the repository says of itself and of the disk reaches the plan and the pull request."""

from __future__ import annotations

import pytest

from formica.rules.pipeline import State
from formica.rules.plan import seconds
from formica.rules.policy import Policy
from tests.fakes.world import World

UNATTENDED = Policy(reporting_mode="proactive", auto_fix=True, dry_run="never")


async def test_short_of_disk_an_item_waits_with_the_reason() -> None:
    """Below the floor nothing is begun and no attempt or fault is counted: the plan says why and when it is
    looked at next, and goes on when there is room."""
    world = World(policy=UNATTENDED)
    number = world.report()
    daemon = world.daemon()
    daemon.repository.short_of_room = "held back: 100 MiB are free"
    await daemon.look(number)
    plan = world.plan(number)
    assert (plan.state, plan.why_waiting) == (State.CLAIMED, "held back: 100 MiB are free")
    assert (plan.faults, plan.attempt) == (0, 0)
    assert seconds(str(plan.next_look_at)) == world.clock.now() + 300
    assert daemon.repository.workspaces == {}
    daemon.repository.short_of_room = None
    world.clock.advance(301)
    await daemon.look(number)
    assert world.plan(number).outcome == "pr_opened"


@pytest.mark.parametrize(
    ("moved_on", "said"), [(0, None), (1, "by 1 commit since"), (12, "by 12 commits since")]
)
async def test_a_base_that_moved_is_said_in_the_pull_request(moved_on: int, said: str | None) -> None:
    """The branch is fetched again before publishing; when it moved on, people are told by how much."""
    world = World(policy=UNATTENDED)
    number = world.report()
    world.remote.moved_on = moved_on
    await world.daemon().look(number)
    (draft,) = world.forge.drafts
    assert ("moved on" in draft.body) == (said is not None)
    assert (said or "") in draft.body
