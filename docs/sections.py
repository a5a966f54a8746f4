"""Docstrings as griffe reads them: `Example:` is a section of examples, its other sections of ours are paragraphs."""

import re

import griffe

CHANGES = {
    r"^( *)Example:$": r"\1Examples:",
    r"^( *)References:\n +": r"\1**References:** ",
    r"^( *)(Gradient|What differs from \w+|Values): ": r"\1**\2:** ",
}


class Sections(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring:
            for pattern, text in CHANGES.items():
                obj.docstring.value = re.sub(pattern, text, obj.docstring.value, flags=re.MULTILINE)

    def on_function(self, *, func, **_):
        """An annotation that says nothing is not shown."""
        for parameter in func.parameters:
            if str(parameter.annotation) == "Any":
                parameter.annotation = None
