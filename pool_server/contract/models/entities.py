"""Any entity, its history and its relationships. Source: the wire contract, section 4."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from pool_server.contract.models.common import (
    STORABLE,
    STORABLE_FIELDS,
    Cursor,
    EntityId,
    EntityKey,
    EntityType,
    Input,
    Limit,
    Output,
    PostInput,
    Visibility,
)

Fields = Annotated[
    dict[Annotated[str, StringConstraints(min_length=1, max_length=128), STORABLE], Any],
    Field(max_length=500),
    STORABLE_FIELDS,
]


class GetEntity(Input):
    entity_id: EntityId


class ListEntities(Input):
    type: EntityType | None = None
    key: EntityKey | None = None
    after: EntityId | None = None
    limit: Limit = 50


class CreateEntity(PostInput):
    entity_type: EntityType
    fields: Fields
    key: EntityKey | None = None
    visibility: Visibility = "private"


class UpdateEntity(PostInput):
    """``if_match``: the version read, or ``"*"``; on HTTP it comes from the ``If-Match`` header."""

    entity_id: EntityId
    fields: Fields
    if_match: int | Literal["*"] | None = None


class GetHistory(Input):
    entity_id: EntityId
    after: Cursor | None = None
    limit: Limit = 50


class ListRelationships(Input):
    entity_id: EntityId | None = None
    relationship_type: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")] | None = None
    after: Cursor | None = None
    limit: Limit = 50


class CreateRelationship(PostInput):
    relationship_type: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")]
    source_entity_id: EntityId
    target_entity_id: EntityId


class Entity(Output):
    entity_id: str
    entity_type: str
    key: str | None
    version: int
    fields: dict[str, Any]
    visibility: Visibility
    created_at: str
    updated_at: str


class EntityList(Output):
    items: list[Entity]
    next_after: str | None


class HistoryEntry(Output):
    version: int
    action: Literal["created", "updated", "deleted", "restored"]
    actor: dict[str, Any]
    at: str
    fields_changed: list[str]
    fields: dict[str, Any]


class History(Output):
    items: list[HistoryEntry]
    next_after: int | None


class Relationship(Output):
    relationship_id: int
    relationship_type: str
    source_entity_id: str
    target_entity_id: str
    created_at: str


class RelationshipList(Output):
    items: list[Relationship]
    next_after: int | None
