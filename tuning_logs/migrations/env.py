"""Alembic's entry: run the migrations on the connection given by ``tuning_logs.migrate``, in its transaction."""

from alembic import context

from tuning_logs.schema import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    transactional_ddl=False,  # the caller's transaction covers everything, also on SQLite
)
context.run_migrations()
