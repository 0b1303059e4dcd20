"""Alembic's entry: runs on the connection it is given, inside its transaction."""

from alembic import context

from pool_server.storage.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
