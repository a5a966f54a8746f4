"""Windows from positional arguments."""

from jaxpool._geometry.window import Window, make_window


def window_of(shape, window, strides, padding, dilation, ceil_mode, axes) -> Window:
    """Return a window. Windows of padding alone are allowed."""
    return make_window(
        shape,
        window,
        strides,
        padding,
        window_dilation=dilation,
        ceil_mode=ceil_mode,
        axes=axes,
        empty_windows="allow",
    )
