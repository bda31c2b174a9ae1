"""Backups of the whole installation, and open bundles of one organisation's documents.

A backup is for coming back: every row of one moment and every file, restored as they were. A
bundle is for moving: documents in a format that others can read and write, into any organisation.
"""

from recollect.ops.backup._archive import Archive, Manifest, Progress, Tell, alone, silent
from recollect.ops.backup._bundle import Bundle
from recollect.ops.backup._export import export
from recollect.ops.backup._import import Brought, bring, must_embed
from recollect.ops.backup._open_bundle import open_bundle
from recollect.ops.backup._restore import Restored, check_schema, restore
from recollect.ops.backup._write import WrittenBackup, backup

__all__ = [
    "Archive",
    "Brought",
    "Bundle",
    "Manifest",
    "Progress",
    "Restored",
    "Tell",
    "WrittenBackup",
    "alone",
    "backup",
    "bring",
    "check_schema",
    "export",
    "must_embed",
    "open_bundle",
    "restore",
    "silent",
]
