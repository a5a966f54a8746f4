"""The tests of other libraries with ours in their place: `python -m tests.peers`.

Nothing of theirs is kept here: what a test needs is fetched into a temporary folder, or read from the installed
package. Each failure that is not ours to mend stands in `ours.py`, with the reason.
"""
