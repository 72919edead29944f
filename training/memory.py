"""Settings of the process that training on a CPU wants."""

from __future__ import annotations

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Names of mallopt's settings, from glibc's malloc.h."""


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory for the next request; elsewhere nothing changes.

    By default an array of some megabytes is mapped anew each time and unmapped when freed, so
    that every micro-batch faults its activations in again, page by page. The process keeps the
    most it ever held.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
