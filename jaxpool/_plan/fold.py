"""How a fold walks a long window: element by element, or by halves."""

from jaxpool._plan.tuning import LIMITS


def in_one_go(taps: int, stride: int) -> bool:
    """Whether `taps` elements along an axis are joined one by one: few, or not more than the windows are apart."""
    return taps <= max(LIMITS.fold_taps, stride)


def kept_before(tap: int) -> bool:
    """Whether what was joined so far is kept before element `tap` is: loops of many joins compile for long."""
    return tap % LIMITS.fold_taps == 0
