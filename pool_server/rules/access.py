"""Who is calling, and what a role may do. Pure. Source: the wire contract, section 2.

What a caller may not know exists is answered like what does not exist. A guest is told more of a public issue
only because everybody can read it: it exists, but the token was not minted for it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from pool_server.contract.models import Role, Tier, Visibility
from pool_server.errors import AuthRequired, Forbidden, NotFound

Surface = Literal["http", "mcp", "cli"]


@dataclass(frozen=True, slots=True)
class Caller:
    """One caller of one operation, after every credential it presented was found valid."""

    role: Role
    actor_id: str
    """The key's handle, ``guest`` or ``anonymous``: what events and history name."""
    tier: Tier
    address: str
    surface: Surface
    client: str = ""
    """User agent as it was sent; screened and shortened where it is stored."""
    key_id: str | None = None
    token_digest: str | None = None
    """A guest's token, as stored; the rate limit counts per token."""
    issue_entity_id: str | None = None
    """A guest's thread."""


@dataclass(frozen=True, slots=True)
class Thread:
    """What access to one issue depends on. ``submitter_key_id``: the key that filed it, if one did."""

    entity_id: str
    visibility: Visibility
    submitter_key_id: str | None


def require_role(allowed: Collection[Role], caller: Caller) -> None:
    """Refuse a role that may not call an operation at all.

    Raises:
        AuthRequired: nothing was presented and something is needed.
        Forbidden: a valid credential without the right.
    """
    if caller.role in allowed:
        return
    if caller.role == "anonymous":
        raise AuthRequired("this needs an API key or a guest token")
    raise Forbidden("this credential does not allow that")


def sees(caller: Caller, thread: Thread) -> bool:
    """Whether the caller may read the issue."""
    if caller.role == "operator":
        return True
    if caller.role == "guest":
        return caller.issue_entity_id == thread.entity_id
    return thread.visibility == "public"


def require_readable(caller: Caller, thread: Thread | None) -> Thread:
    """The thread, if the caller may read it.

    Raises:
        NotFound: unknown, or private to the caller.
        Forbidden: a guest token that was minted for another thread.
    """
    if thread is None:
        raise NotFound("no such issue")
    if sees(caller, thread):
        return thread
    if caller.role == "guest" and thread.visibility == "public":
        raise Forbidden("this guest token is for another issue")
    raise NotFound("no such issue")


def require_appendable(caller: Caller, thread: Thread | None) -> Thread:
    """The thread, if the caller may write to it.

    Raises:
        AuthRequired: anonymous, whatever the issue.
        NotFound, Forbidden: as for reading.
    """
    if caller.role == "anonymous":
        raise AuthRequired("appending needs the guest token of this issue or an API key")
    return require_readable(caller, thread)


def speaks_for_reporter(caller: Caller, thread: Thread) -> bool:
    """Whether the caller is the thread's guest, the key that filed it, or an operator."""
    if caller.role == "member":
        return caller.key_id is not None and caller.key_id == thread.submitter_key_id
    return caller.role == "operator" or caller.issue_entity_id == thread.entity_id


def require_reporter(caller: Caller, thread: Thread | None) -> Thread:
    """The thread, if the caller speaks for its reporter: its guest, the key that filed it, or an operator.

    Raises:
        AuthRequired, NotFound, Forbidden: as for appending; Forbidden also for a member that did not file it.
    """
    found = require_appendable(caller, thread)
    if not speaks_for_reporter(caller, found):
        raise Forbidden("only the reporter of this issue may do that")
    return found


def sees_entity(caller: Caller, visibility: Visibility) -> bool:
    """Whether a caller may name an entity as a link."""
    return caller.role == "operator" or visibility == "public"


def idempotency_scope(caller: Caller) -> str:
    """Whose idempotency keys these are: the key's, the thread's guest's, or the address's."""
    if caller.role == "guest":
        return f"guest:{caller.issue_entity_id}"
    if caller.key_id is not None:
        return f"key:{caller.key_id}"
    return f"anonymous:{caller.address}"
