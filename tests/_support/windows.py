"""A substitute for the locks of Windows."""

import errno
import os
from types import SimpleNamespace

__all__ = ["FakeMsvcrt"]


class FakeMsvcrt(SimpleNamespace):
    """Locks the byte at which a file stands for one handle, as Windows does."""

    LK_UNLCK, LK_LOCK, LK_NBLCK = 0, 1, 2

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[int, int], int] = {}

    def locking(self, handle: int, mode: int, count: int) -> None:
        assert count == 1
        byte = (os.fstat(handle).st_ino, os.lseek(handle, 0, os.SEEK_CUR))
        if mode == self.LK_NBLCK:
            if byte in self.held:
                raise OSError(errno.EACCES, "Permission denied")
            self.held[byte] = handle
        else:
            assert mode == self.LK_UNLCK
            assert self.held.pop(byte) == handle
