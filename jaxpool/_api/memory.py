"""`keep_memory`: tells glibc to reuse freed memory, not to return it to the system."""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from typing import Any

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_SETTINGS = {_MMAP_MAX: 0, _TRIM_THRESHOLD: -1, _TOP_PAD: 1 << 28, _ARENA_MAX: 1}


@functools.cache
def keep_memory() -> bool:
    """Tells the allocator of this process to keep the memory it frees, for arrays to come.

    On a CPU a large result is fresh memory from the system, given back as soon as it is freed: every
    4 KiB of it cost a page fault, all of them as much as a pool itself. Memory that is kept serves the
    next result without. It holds for whatever the process computes, with jaxpool or without.

    Call it before any thread is started and before the first call into jax, `jax.devices()` included. The
    process then stays as large as it ever was, three to five times what it needs at once; all its threads
    allocate from one heap, and a child of `fork` inherits both. No call undoes it. On other devices it serves
    the arrays of the host alone.

    Args:
        None: it takes no argument.

    Returns:
        True if the settings are in force. False if nothing was changed: where glibc 2.33 or later does
        not allocate (macOS, Windows, musl, a preloaded allocator), or a thread has a heap of its own
        already, which it would keep, as the threads of jax and of a notebook do. There a variable of the
        environment does the same from the start (docs/memory.md).

    Raises:
        TypeError: it is called with an argument. What the system refuses is no error: then it is False.

    Example:
        >>> import jaxpool
        >>> kept = jaxpool.keep_memory()

    References:
        mallopt(3): M_MMAP_MAX 0, M_TRIM_THRESHOLD -1, M_TOP_PAD 256 MiB, M_ARENA_MAX 1.
    """
    libc = _glibc()
    if libc is None or _arenas(libc) > 1:
        return False
    return all(libc.mallopt(name, value) == 1 for name, value in _SETTINGS.items())


class _Usage(ctypes.Structure):
    """What `mallinfo2` gives: ten sizes, the eighth of them the bytes in use."""

    _fields_ = (("sizes", ctypes.c_size_t * 10),)


def _glibc() -> Any:
    """The C library of this process, if it is glibc, 2.33 or later, and allocates itself; else None."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    try:
        usage, malloc, free = libc.mallinfo2, libc.malloc, libc.free
    except AttributeError:
        return None
    usage.restype, malloc.restype, free.argtypes = _Usage, ctypes.c_void_p, [ctypes.c_void_p]
    before, size = usage().sizes[7], 1 << 16
    block = malloc(ctypes.c_size_t(size))
    grown = usage().sizes[7] - before
    free(block)
    return libc if grown >= size else None


def _arenas(libc: Any) -> int:
    """How many arenas glibc has: the first, and one for each thread that allocated, up to a limit."""
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    libc.open_memstream.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    said = ctypes.string_at(text, size.value)
    libc.free(text)
    return len(re.findall(rb"<heap nr=", said))
