"""The sections of docstrings as griffe knows them: `Example:` is one of examples, others are paragraphs."""

import re

import griffe


class Sections(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring:
            text = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
            text = re.sub(r"^( *)References:\n +", r"\1**References.** ", text, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"^( *)Gradient: ", r"\1**Gradient.** ", text, flags=re.MULTILINE)
