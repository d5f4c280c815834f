"""On which kind of file system a file lies. SQLite's WAL shares memory between processes, which no network has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import psutil

NETWORK_FILE_SYSTEMS = frozenset(
    (
        *("9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "drvfs", "gfs", "gfs2", "glusterfs", "gpfs"),
        *("lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2", "smb2", "smb3", "smbfs"),
        *("vboxsf", "virtiofs", "vmhgfs", "webdav"),
    )
)


def network_file_system(path: Path, mounts: Iterable[tuple[str, str]] | None = None) -> str | None:
    """The network file system's type under ``path``, or None where it is a local one.

    Any FUSE file system but a local disk's (fuseblk) counts as one: what it shares between processes is unknown.

    Args:
        path: an absolute path; it need not exist.
        mounts: (mount point, type) of every mount; None asks this machine.
    """
    if mounts is None:
        try:
            mounts = [(part.mountpoint, part.fstype) for part in psutil.disk_partitions(all=True)]
        except (OSError, RuntimeError, ValueError):  # without /proc
            mounts = ()
    holding = [(len(Path(point).parts), kind) for point, kind in mounts if path.is_relative_to(point)]
    if not holding:
        return None
    # Of equally deep mounts the last covers the others.
    kind = max(enumerate(holding), key=lambda item: (item[1][0], item[0]))[1][1].lower()
    return kind if kind in NETWORK_FILE_SYSTEMS or kind.startswith(("fuse.", "nfs", "smb")) else None
