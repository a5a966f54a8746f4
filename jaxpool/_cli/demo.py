"""Train a small CNN on real handwritten digits, with pools and a maxout unit from jaxpool.

After that, draw the pixels of a digit that receive the cotangent of a max pool, and time pools against jax.lax on
photographs. The cotangent of an array, which the backward pass computes, is the derivative of the result with respect
to each element of the array.
"""

import argparse

import jaxpool
from jaxpool._cli import integer_between, output_path, require_modules

DEFAULT_STEPS = 600
MIN_ACCURACY = 0.97
PICTURE_NAME, DEVICES_PICTURE_NAME = "jaxpool_demo.png", "jaxpool_demo_devices.png"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `demo`."""
    parser.add_argument(
        "--steps",
        type=integer_between(1, 10**6),
        default=DEFAULT_STEPS,
        help=f"training steps (default: {DEFAULT_STEPS})",
    )
    parser.add_argument(
        "--seed",
        type=integer_between(0, 2**32 - 1),
        default=0,
        help="seed of the weights and of the order of images (default: 0)",
    )
    parser.add_argument(
        "--devices",
        type=integer_between(1, 256),
        metavar="N",
        help="instead, train on one large image that N devices of this host share, a part each",
    )
    parser.add_argument(
        "--output",
        type=output_path(".png", allow_folder=True),
        default=".",
        metavar="PATH",
        help=f"the picture: a .png file, or a folder for {PICTURE_NAME}, with --devices {DEVICES_PICTURE_NAME}",
    )


def run(args: argparse.Namespace) -> int:
    """Train, draw and compare. Returns 1 if the accuracy is too low or pools disagree with lax, else 0."""
    require_modules("demo", "flax", "matplotlib", "optax", "PIL", "sklearn", "tqdm")
    jaxpool.keep_memory()
    picture_name = PICTURE_NAME if args.devices is None else DEVICES_PICTURE_NAME
    picture_path = args.output / picture_name if args.output.is_dir() else args.output
    if args.devices is not None:
        from jaxpool._cli import _devices

        return _devices.run(args.devices, args.seed, picture_path)
    from jaxpool._cli import _digits, _photograph

    accuracy = _digits.train_and_draw(args.steps, args.seed, picture_path)
    pools_agree = _photograph.compare_with_lax(_photograph.load_photographs())
    return _exit_status(accuracy, pools_agree, args.steps)


def _exit_status(accuracy: float, pools_agree: bool, num_steps: int) -> int:
    """The exit status. Prints the checks that failed. Few steps need not reach the accuracy."""
    is_short = num_steps < DEFAULT_STEPS
    is_accurate = accuracy >= MIN_ACCURACY
    if not pools_agree:
        print("The pools do not agree with jax.lax: see the table.")
    if not is_accurate:
        hint = f": reaching it takes the default of {DEFAULT_STEPS} steps" if is_short else ""
        print(f"The accuracy is below {MIN_ACCURACY:.0%}{hint}.")
    return 0 if pools_agree and (is_accurate or is_short) else 1
