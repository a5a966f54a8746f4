"""Run the tests of other libraries on jaxpool's replacements: `python -m tests.peers`.

The repository has no code of these libraries: test files are downloaded to a temporary folder, or come from the
installed package. `ours.py` lists the failures without a fault of jaxpool, with their reasons.
"""
