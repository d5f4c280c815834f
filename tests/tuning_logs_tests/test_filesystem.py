"""Network file systems are recognised by the mount that really holds a path."""

from pathlib import Path

import pytest

from tuning_logs.filesystem import network_file_system

MOUNTS = [
    ("/", "ext4"),
    ("/home", "nfs4"),
    ("/home/me/disk", "xfs"),
    ("/mnt/share", "cifs"),
    ("/mnt/cloud", "fuse.sshfs"),
    ("/mnt/usb", "fuseblk"),
    ("/mnt/twice", "NFS"),
    ("/mnt/twice", "ext4"),
    ("/proc", "proc"),
]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/tuning.db", None),
        ("/home/me/tuning.db", "nfs4"),
        ("/homes/tuning.db", None),
        ("/home/me/disk/tuning.db", None),
        ("/mnt/share/a/b/tuning.db", "cifs"),
        ("/mnt/cloud/tuning.db", "fuse.sshfs"),
        ("/mnt/usb/tuning.db", None),
        ("/mnt/twice/tuning.db", None),
    ],
)
def test_the_deepest_and_last_mount_decides(path: str, kind: str | None) -> None:
    assert network_file_system(Path(path), MOUNTS) == kind


def test_without_mounts_nothing_is_known() -> None:
    assert network_file_system(Path("/a"), []) is None


def test_this_machine_can_be_asked() -> None:
    assert network_file_system(Path("/proc/self/status")) is None
