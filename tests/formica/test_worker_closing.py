"""After the pull request: a merge closes the loop once, a person's closing is remembered, a no reopens."""

from __future__ import annotations

import pytest

from formica.errors import Refused, Retryable, Stopped
from formica.rules.pipeline import State
from formica.rules.policy import Policy
from formica.worker.closing import watches
from tests.fakes.hooks import Hook
from tests.fakes.world import Daemon, World

UNATTENDED = Policy(reporting_mode="proactive", auto_fix=True, dry_run="never")


async def published(world: World) -> tuple[Daemon, int]:
    """A report with an open pull request."""
    number = world.report()
    daemon = world.daemon()
    await daemon.look(number)
    assert world.plan(number).state is State.DONE
    return daemon, number


async def test_a_merge_closes_the_loop_once() -> None:
    """Merged: resolved with the commit, one message, the worktree gone; looking again does nothing more."""
    world = World(policy=UNATTENDED)
    daemon, number = await published(world)
    await daemon.watch(number)
    assert world.issues.threads[number]["status"] == "in_progress"
    sha = world.forge.merge(1)
    for _ in range(3):
        await daemon.watch(number)
    issue = world.issues.threads[number]
    assert (issue["status"], issue["resolution"]["kind"]) == ("resolved", "fixed")
    assert (issue["resolution"]["fixed_in_sha"], issue["resolution"]["pr_url"]) == (
        sha,
        world.forge.pulls[0].url,
    )
    assert len([body for body in world.issues.said(number) if sha in body]) == 1
    assert len([call for call in world.hooks.calls if call.kind == "bulk_close"]) == 1
    assert world.plan(number).merged_sha == sha
    assert daemon.repository.disposed == [number]


async def test_a_merge_that_only_git_knows_is_seen() -> None:
    """People who merge with git alone close the loop too."""
    world = World(policy=UNATTENDED)
    daemon, number = await published(world)
    sha = world.remote.merge(world.forge.pulls[0].head_sha)
    await daemon.watch(number)
    assert world.issues.threads[number]["resolution"]["fixed_in_sha"] == sha


async def test_a_merge_before_the_report_was_given_closes_the_loop_too() -> None:
    """A person who merges at once, before the daemon has read back, is not overlooked."""
    world = World(policy=UNATTENDED)
    number = world.report()
    world.hooks.hooks = [Hook("after", "create_pull", 1, lambda: void(world.forge.merge(1)))]
    daemon = world.daemon()
    await daemon.look(number)
    await daemon.watch(number)
    assert (world.plan(number).state, world.plan(number).pr_state) == (State.DONE, "merged")
    assert world.issues.threads[number]["status"] == "resolved"


def void(_: object) -> None:
    """A hook's act answers nothing."""


@pytest.mark.parametrize("call", range(1, 14))
async def test_a_fault_while_closing_is_made_good(call: int) -> None:
    """A lost reply at any call of closing ends in one resolution and one message."""
    world = World(policy=UNATTENDED)
    daemon, number = await published(world)
    world.forge.merge(1)

    def lost() -> None:
        raise Retryable("no answer")

    world.hooks.hooks = [Hook("after", "*", world.hooks.counts["*"] + call, lost)]
    for _ in range(3):
        try:
            await daemon.watch(number)
        except Retryable:
            continue
    assert world.issues.threads[number]["status"] == "resolved"
    assert len(world.issues.said(number)) == 2
    assert world.plan(number).pr_state == "merged"


async def test_two_daemons_that_see_the_merge_tell_it_once() -> None:
    """Both may watch; the thread hears one message."""
    world = World(policy=UNATTENDED)
    daemon, number = await published(world)
    world.forge.merge(1)
    other = world.daemon("beta")
    world.hooks.hooks = [
        Hook("after", "read_pull", world.hooks.counts["read_pull"] + 1, lambda: other.watch(number))
    ]
    await daemon.watch(number)
    assert len(world.issues.said(number)) == 2
    assert world.plan(number).pr_state == "merged"


@pytest.mark.parametrize("paused", ["switch", "off"])
async def test_closing_obeys_the_switch_and_the_mode(paused: str) -> None:
    """Switched off, or with reporting off, a merge is not acted on until that ends."""
    world = World(policy=UNATTENDED)
    daemon, number = await published(world)
    world.forge.merge(1)
    before = len(world.hooks.writes())
    if paused == "off":
        await Daemon(world, "alpha", Policy(reporting_mode="off")).watch(number)
    else:
        world.pause()
        with pytest.raises(Stopped, match="active is false"):
            await daemon.watch(number)
        world.resume()
    assert len(world.hooks.writes()) == before
    await daemon.watch(number)
    assert world.issues.threads[number]["status"] == "resolved"


async def test_a_release_adds_its_version_and_one_message() -> None:
    """The first release that contains the merge is named in the resolution and told once."""
    world = World(policy=UNATTENDED)
    daemon, number = await published(world)
    world.forge.merge(1)
    await daemon.watch(number)
    await daemon.watch(number)
    world.remote.release("v1.5.0")
    for _ in range(3):
        await daemon.watch(number)
    assert world.issues.threads[number]["resolution"]["fixed_in_version"] == "v1.5.0"
    assert len([body for body in world.issues.said(number) if "v1.5.0" in body]) == 1
    assert not watches(world.plan(number))


async def test_a_release_after_the_reporter_verified_keeps_the_issue_closed() -> None:
    """A later release tells its version and reopens nothing."""
    world = World(policy=UNATTENDED)
    daemon, number = await published(world)
    world.forge.merge(1)
    await daemon.watch(number)
    world.issues.verify(number, worked=True)
    world.remote.release("v1.5.0")
    await daemon.watch(number)
    assert world.issues.threads[number]["status"] == "closed"


async def test_a_pull_request_closed_by_a_person_is_remembered() -> None:
    """No second one without retry: not by looking, not by a new word from the reporter."""
    world = World(policy=UNATTENDED)
    daemon, number = await published(world)
    world.forge.close(1)
    await daemon.watch(number)
    plan = world.plan(number)
    assert (plan.pr_state, f"/retry {number}" in plan.why_waiting) == ("closed", True)
    world.issues.reply(number, "and?")
    for _ in range(3):
        await daemon.look(number)
        await daemon.watch(number)
    assert len(world.forge.pulls) == 1
    await world.desk.retry(number)
    await daemon.look(number)
    assert [pull.branch for pull in world.forge.pulls] == [
        f"formica/issue-{number}",
        f"formica/issue-{number}-2",
    ]
    assert world.plan(number).pr_url == world.forge.pulls[1].url


async def test_a_pull_request_closed_before_it_was_recorded_is_remembered_too() -> None:
    """Closed while the daemon was down, right after it was opened: still no second one."""
    world = World(policy=UNATTENDED)
    number = world.report()
    world.hooks.hooks = [Hook("after", "create_pull", 1, world.pause)]
    daemon = world.daemon()
    await daemon.look(number)
    world.forge.close(1)
    world.hooks.hooks = []
    world.resume()
    for _ in range(3):
        await daemon.look(number)
    plan = world.plan(number)
    assert (plan.state, plan.waiting_for) == (State.WAITING_OPERATOR, "decision")
    assert f"/retry {number}" in plan.why_waiting
    assert len(world.forge.pulls) == 1


async def test_a_fix_that_did_not_work_goes_to_the_maintainer_and_stays_there() -> None:
    """The reporter's no reopens the plan for a decision; more words start nothing; retry makes a second round."""
    world = World(policy=UNATTENDED)
    daemon, number = await published(world)
    world.forge.merge(1)
    await daemon.watch(number)
    world.issues.verify(number, worked=False, body="It still crashes.")
    await daemon.look(number)
    world.issues.reply(number, "Really.")
    await daemon.look(number)
    plan = world.plan(number)
    assert (plan.state, plan.waiting_for, plan.decision_required) == (
        State.WAITING_OPERATOR,
        "decision",
        True,
    )
    assert len(daemon.agent.tasks) == 1
    with pytest.raises(Refused):
        await world.desk.go(number)
    await world.desk.retry(number)
    await daemon.look(number)
    assert (world.plan(number).state, world.plan(number).round, len(world.forge.pulls)) == (State.DONE, 1, 2)
    world.forge.merge(2)
    await daemon.watch(number)
    assert world.issues.threads[number]["status"] == "resolved"
    assert world.issues.threads[number]["resolution"]["pr_url"] == world.forge.pulls[1].url


async def test_a_record_marked_merged_without_the_change_says_so() -> None:
    """A pull request called merged whose change is on no branch resolves nothing and gives the reason."""
    world = World(policy=UNATTENDED)
    daemon, number = await published(world)
    world.forge.merge(1)
    pull = world.forge.pulls[0]
    world.remote.merged.clear()
    world.forge.pulls[0] = type(pull)(
        pull.url, pull.number, pull.branch, pull.head_sha, "merged", None, pull.raw
    )
    for _ in range(2):
        await daemon.watch(number)
    assert world.issues.threads[number]["status"] == "in_progress"
    assert "does not hold the change" in world.plan(number).why_waiting
