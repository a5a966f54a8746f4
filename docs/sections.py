"""A griffe extension that prepares docstrings for the API reference.

`Example:` becomes a section of examples, and other headings become bold words. Griffe only reads source files, so
docstrings and functions that are created at import come from the imported module.
"""

import importlib
import inspect
import re
import types
import typing

import griffe

CHANGES = {
    r"^( *)Example:$": r"\1Examples:",
    r"^( *)References:\n +": r"\1**References:** ",
    r"^( *)(Gradient|What differs from \w+|Values): ": r"\1**\2:** ",
    r"\barXiv:(\d{4}\.\d{4,5})": r"[arXiv:\1](https://arxiv.org/abs/\1)",
}
# Names of other libraries become links to their documentation.
MANUALS = {
    "jax.lax": "https://docs.jax.dev/en/latest/_autosummary/{}.html",
    "jax.numpy": "https://docs.jax.dev/en/latest/_autosummary/{}.html",
    "jax.ops": "https://docs.jax.dev/en/latest/_autosummary/{}.html",
    "torch": "https://docs.pytorch.org/docs/stable/generated/{}.html",
    "torch.nn.functional": "https://docs.pytorch.org/docs/stable/generated/{}.html",
    "torchvision.ops": "https://docs.pytorch.org/vision/stable/generated/{}.html",
    "scipy.ndimage": "https://docs.scipy.org/doc/scipy/reference/generated/{}.html",
}


class Sections(griffe.Extension):
    def on_module_members(self, *, mod, **_):
        """Add functions of which a stub has overloads but, as type checkers require, no definition."""
        for name, overloads in mod.overloads.items():
            if overloads and name not in mod.members:
                mod.set_member(name, overloads[0])

    def on_module(self, *, mod, **_):
        """Add functions that are module attributes without a `def`."""
        if "._" in mod.path:
            return
        self.change(mod)
        for name, member in list(mod.members.items()):
            thing = getattr(importlib.import_module(mod.path), name, None)
            is_public_function = inspect.isfunction(thing) and not name.startswith("_")
            if is_public_function and member.kind is griffe.Kind.ATTRIBUTE:
                mod.set_member(name, as_function(name, thing, mod.docstring))
                self.on_function(func=mod.members[name])

    def on_function(self, *, func, **_):
        module = func.module.path
        if func.docstring and func.parent.is_module:
            thing = getattr(importlib.import_module(module), func.name)
            func.docstring.value = inspect.getdoc(thing) or func.docstring.value
            # The stub of the package has functions of other modules.
            module = getattr(thing, "__module__", module)
        for parameter in func.parameters:
            if str(parameter.annotation) == "Any":  # carries no information
                parameter.annotation = None
            elif parameter.annotation:
                meant = spelled_out(str(parameter.annotation), module)
                if meant != str(parameter.annotation):  # an equal string would drop the links
                    parameter.annotation = meant
        self.change(func)
        # With a type, griffe does not take text before a colon for one.
        if func.docstring and func.returns:
            returned = spelled_out(str(func.returns), module)
            pattern, text = r"^( *)Returns:\n( +)", rf"\1Returns:\n\2{returned}: "
            func.docstring.value = re.sub(pattern, text, func.docstring.value, flags=re.MULTILINE)

    def on_class(self, *, cls, **_):
        self.change(cls)

    def change(self, obj):
        if obj.docstring:
            for pattern, text in CHANGES.items():
                obj.docstring.value = re.sub(pattern, text, obj.docstring.value, flags=re.MULTILINE)
            references = r"\*\*References:\*\* .*(?:\n *\S.*)*"
            obj.docstring.value = re.sub(references, linked, obj.docstring.value)


def linked(references):
    """Turn names of the libraries in `MANUALS` into links."""

    def link(name):
        manual = MANUALS.get(name[1].rpartition(".")[0])
        return f"[{name[0]}]({manual.format(name[1])})" if manual else name[0]

    return re.sub(r"`(\w+(?:\.\w+)+)`", link, references[0])


def spelled_out(annotation, module):
    """Expand type aliases of the module, such as Ints to `int | Sequence[int]`."""
    names = vars(importlib.import_module(module))

    def meant(match):
        thing = names.get(match[0])
        thing = thing.__bound__ if isinstance(thing, typing.TypeVar) else thing
        union = isinstance(thing, types.UnionType)
        if not union and typing.get_origin(thing) is None:
            return match[0]
        text = repr(thing).replace("typing.Any", "Any")
        return re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)

    return re.sub(r"\b[A-Z]\w*\b(?!\[)", meant, annotation)


def as_function(name, function, other):
    """Convert a function to a griffe object. Its docstring is parsed with the options of `other`."""

    def annotation(found):
        known = found is not inspect.Parameter.empty
        return spelled_out(str(found), function.__module__) if known else None

    def default(value):
        text = re.sub(
            r"<object object at \w+>", "...", repr(value)
        )  # the address differs in each run
        return None if value is inspect.Parameter.empty else text

    signature = inspect.signature(function)
    parameters = [
        griffe.Parameter(
            each.name,
            annotation=annotation(each.annotation),
            kind=getattr(griffe.ParameterKind, each.kind.name.lower()),
            default=default(each.default),
        )
        for each in signature.parameters.values()
    ]
    returns = annotation(signature.return_annotation)
    how = {"parser": other.parser, "parser_options": other.parser_options}
    docstring = griffe.Docstring(inspect.getdoc(function) or "", **how)
    parameters = griffe.Parameters(*parameters)
    return griffe.Function(name, parameters=parameters, returns=returns, docstring=docstring)
