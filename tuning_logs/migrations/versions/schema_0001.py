"""The first schema: workloads, targets, keys, records."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# Written out, not taken from tuning_logs.schema: a released migration never changes again.
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIMED = sa.text("latency_s IS NOT NULL")
FAILED = sa.text("error IS NOT NULL")


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "workloads",
        sa.Column("task", sa.Text(), primary_key=True),
        sa.Column("program", sa.LargeBinary()),
        sa.Column("sha256", sa.Text()),
    )
    op.create_table(
        "targets",
        sa.Column("fingerprint", sa.Text(), primary_key=True),
        sa.Column("description", sa.Text()),
    )
    op.create_table(
        "keys",
        sa.Column("id", ROW_ID, primary_key=True),
        sa.Column("task", sa.Text(), sa.ForeignKey("workloads.task"), nullable=False),
        sa.Column("target", sa.Text(), sa.ForeignKey("targets.fingerprint"), nullable=False),
        sa.Column("space", sa.Text(), nullable=False),
        sa.Column("tvm", sa.Text(), nullable=False),
        sa.UniqueConstraint("task", "target", "space", "tvm", name="one_key"),
    )
    op.create_index("keys_of_space", "keys", ["space", "target", "tvm"])
    _create_records()


def _create_records() -> None:
    op.create_table(
        "records",
        sa.Column("id", ROW_ID, primary_key=True),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", ROW_ID, sa.ForeignKey("keys.id"), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("config_hash", sa.BigInteger(), nullable=False),
        sa.Column("latency_s", sa.Double()),
        sa.Column("latencies_s", sa.LargeBinary()),
        sa.Column("error", sa.Text()),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("compile_s", sa.Double(), nullable=False),
        sa.Column("run_s", sa.Double(), nullable=False),
        sa.Column("code_hash", sa.Text(), nullable=False),
        sa.Column("trace", sa.LargeBinary(), nullable=False),
        sa.Column("measured_at", sa.Double(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("seed", sa.Text(), nullable=False),
        sa.Column("provenance", sa.Text(), nullable=False),
    )
    op.create_index("one_record", "records", ["digest"], unique=True)
    op.create_index("records_by_age", "records", ["key_id", "measured_at", "id"])
    op.create_index("all_by_age", "records", ["measured_at", "id"])
    for name, column in (("records_by_speed", "latency_s"), ("records_by_config", "config_hash")):
        op.create_index(
            name,
            "records",
            ["key_id", column, "measured_at", "id"],
            sqlite_where=TIMED,
            postgresql_where=TIMED,
        )
    op.create_index("records_by_error", "records", ["key_id", "error"], sqlite_where=FAILED, postgresql_where=FAILED)
