"""Show the packaged code that is about to run, instead of a copy of it."""

import ast
import inspect
import textwrap

from IPython.display import display


def show_source(function):
    """Display the source of a function or method, without its docstring.

    Parameters
    ----------
    function : function
        For example ``EmbeddingLayer.forward``; ``help(function)`` shows the
        docstring.
    """
    code = _without_docstring(textwrap.dedent(inspect.getsource(function)))
    display(
        {"text/markdown": f"```python\n{code}```", "text/plain": code},
        raw=True,
    )


def _without_docstring(source):
    (definition,) = ast.parse(source).body
    lines = source.splitlines(keepends=True)
    if ast.get_docstring(definition) is not None:
        docstring = definition.body[0]
        del lines[docstring.lineno - 1 : docstring.end_lineno]
    return "".join(lines)
