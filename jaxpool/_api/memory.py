"""Public `keep_memory`: sets the allocator options of glibc so that the process reuses the memory that it frees."""

from __future__ import annotations

import ctypes
import functools
import re
import sys
import warnings
from typing import Any

# Option numbers from malloc.h of glibc.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_MALLOC_SETTINGS = {_MMAP_MAX: 0, _TRIM_THRESHOLD: -1, _TOP_PAD: 1 << 28, _ARENA_MAX: 1}


@functools.cache
def keep_memory() -> bool:
    """Makes the allocator of this process keep freed memory for later arrays.

    On CPU, XLA allocates each large result anew, and the page faults of new memory can take as long as the pool
    itself. Reused memory has no page faults. The setting holds for everything that the process computes.

    Call `keep_memory` before any thread starts and before the first call into jax, even `jax.devices()`. The setting
    cannot be undone. The process never shrinks, and may hold three to five times the memory in use. All threads
    allocate from one heap, and a child of `fork` inherits both. On other devices only host arrays are affected.

    Args:
        None: the function takes no argument.

    Returns:
        True if the settings are in force. False, and nothing is changed, if the allocator is not glibc 2.33 or
        later (macOS, Windows, musl, a preloaded allocator). False, with a warning, if a thread already has a heap, as
        in a notebook or after a call into jax. An environment variable works in these cases (docs/memory.md).

    Raises:
        TypeError: an argument is passed. If the system refuses a setting, the result is False.

    Example:
        >>> import jaxpool
        >>> kept = jaxpool.keep_memory()

    References:
        mallopt(3): M_MMAP_MAX 0, M_TRIM_THRESHOLD -1, M_TOP_PAD 256 MiB, M_ARENA_MAX 1.
    """
    libc = load_glibc_if_in_use()
    if libc is None:
        return False
    if _count_malloc_arenas(libc) > 1:
        message = (
            "jaxpool.keep_memory: nothing was changed, because a thread has allocated memory already. Call it before "
            "the first call into jax, or set GLIBC_TUNABLES before Python starts (docs/memory.md)."
        )
        warnings.warn(message, stacklevel=2)
        return False
    return all(libc.mallopt(name, value) == 1 for name, value in _MALLOC_SETTINGS.items())


class _Mallinfo2(ctypes.Structure):
    """The result of `mallinfo2`: ten sizes. The size at index 7 is the bytes in use."""

    _fields_ = (("sizes", ctypes.c_size_t * 10),)


def load_glibc_if_in_use() -> Any:
    """The C library of this process, if it is glibc 2.33 or later and is the allocator in use; else None."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    try:
        mallinfo, malloc, free = libc.mallinfo2, libc.malloc, libc.free
    except AttributeError:
        return None
    mallinfo.restype, malloc.restype, free.argtypes = _Mallinfo2, ctypes.c_void_p, [ctypes.c_void_p]
    bytes_before, block_size = mallinfo().sizes[7], 1 << 16
    block = malloc(ctypes.c_size_t(block_size))
    bytes_added = mallinfo().sizes[7] - bytes_before
    free(block)
    return libc if bytes_added >= block_size else None


def _count_malloc_arenas(libc: Any) -> int:
    """The number of malloc arenas of glibc: the main arena, plus one per thread that allocated, up to a limit."""
    buffer, buffer_size = ctypes.c_void_p(), ctypes.c_size_t()
    libc.open_memstream.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.open_memstream(ctypes.byref(buffer), ctypes.byref(buffer_size)))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    malloc_info_xml = ctypes.string_at(buffer, buffer_size.value)
    libc.free(buffer)
    return len(re.findall(rb"<heap nr=", malloc_info_xml))
