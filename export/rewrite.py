"""`rewrite`: every GELU of a model in the form asked for, up or down in opset, everything else as it was.

The graph is changed by onnx_ir; the opset by onnx.version_converter, which knows the other operators. (onnxscript's
pattern rewriter matches given shapes; sites.py finds a GELU by value, so there is nothing left to match.)
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from gelu_fast.checks import form_number
from gelu_fast.export import forms, opsets, surgery, writing
from gelu_fast.export.agreement import Agreement, compare_models
from gelu_fast.export.graph import FORMULAS
from gelu_fast.export.inspection import to_ir
from gelu_fast.export.loading import load
from gelu_fast.export.scopes import scope_of
from gelu_fast.export.sites import find
from gelu_fast.export.surgery import Change

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Rewritten:
    """What `rewrite_with_report` did.

    Attributes
    ----------
    model : onnx.ModelProto
    changes : tuple of Change
    opset, new_opset : int
    agreement : Agreement or None
        How the two models compare when run; None if that wasn't asked for.
    """

    model: onnx.ModelProto
    changes: tuple[Change, ...]
    opset: int
    new_opset: int
    agreement: Agreement | None


def rewrite(
    path_or_model: str | PathLike[str] | onnx.ModelProto,
    form: str,
    *,
    opset: int | None = None,
    approximate: str | None = None,
    verify: bool = True,
) -> onnx.ModelProto:
    """Write every GELU of a model in another form.

    Parameters
    ----------
    path_or_model : str, PathLike or onnx.ModelProto
        Left as it is. External data is not copied: the result refers to the same files.
    form : {"native", "fusable", "contrib", "function", "primitive"}
        See `gelu_fast.export.forms`.
    opset : int, optional
        Of the result. By default the model's own, raised where the form needs it.
    approximate : {"none", "tanh", "quick"}, optional
        Changes the formula of every GELU. By default each keeps its own.
    verify : bool
        Whether to run both models on random inputs, in onnxruntime at every optimisation level and by onnx's reference
        evaluator, and compare.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    ValueError
        If the model has no GELU, the form can't serve one of them, the opset can't be had, the two models give
        different results, or nothing could run them.
    FileNotFoundError, TypeError, ImportError
        As `gelu_fast.export.inspect`.
    """
    return rewrite_with_report(path_or_model, form, opset=opset, approximate=approximate, verify=verify).model


def rewrite_with_report(
    path_or_model: str | PathLike[str] | onnx.ModelProto,
    form: str,
    *,
    opset: int | None = None,
    approximate: str | None = None,
    verify: bool = True,
) -> Rewritten:
    """`rewrite`, and what it changed."""
    if form not in forms.FORMS:
        raise ValueError(f"form: expected one of {', '.join(map(repr, forms.FORMS))}, got {form!r}")
    if approximate is not None:
        form_number(approximate)
    loaded = load(path_or_model)
    if loaded.model.graph.sparse_initializer:  # onnx_ir would drop them
        names = ", ".join(repr(s.values.name) for s in loaded.model.graph.sparse_initializer)
        raise ValueError(f"path_or_model: {loaded.name}: sparse initialisers are not served: {names}")
    model = to_ir(loaded)
    sites = find(model)
    if not sites:
        raise ValueError(f"path_or_model: {loaded.name} has no GELU in any spelling")
    old = opsets.opset_of(model)
    for function in model.functions.values():
        inner = function.opset_imports.get("", old)
        if inner < forms.FIRST_OPSET[form] and any(s.scope.startswith(scope_of(function)) for s in sites):
            raise ValueError(f"form: {form!r} needs opset {forms.FIRST_OPSET[form]}, and the function "
                             f"{function.domain}.{function.name}, which has a GELU, imports {inner}")  # fmt: skip
    goal = opset if opset is not None else max(old, forms.FIRST_OPSET[form])
    opsets.check(goal, form)
    for site in sites:
        if form == "native" and (approximate or site.formula) == "quick":
            raise ValueError(
                f"form: 'native' has no quick formula, which {site.output.name!r} in {site.scope} has; 'fusable', "
                "'contrib', 'function' and 'primitive' do"
            )
    # The converter knows neither Erfc nor, before opset 20, Gelu; an operator of another domain it lets pass.
    hidden = form == "native" and goal != old
    progress = surgery.Progress(model)
    changes = tuple(surgery.replace(model, site, form, approximate or site.formula, progress, hidden) for site in sites)
    surgery.drop_unused_functions(model)
    proto: onnx.ModelProto = opsets.to_proto(model) if goal == old else opsets.converted(model, goal, loaded)
    if hidden:
        opsets.uncover(proto.graph)
    if form == "function" and proto.ir_version < 8:
        proto.ir_version = 8
    opsets.tidy(proto, loaded.model)
    _restate(proto, form, approximate)
    agreement = None
    if verify:
        agreement = compare_models(loaded, proto, changed=approximate is not None)
        if not agreement.passed:
            raise ValueError(f"path_or_model: not rewritten, since the results differ: {agreement.reason}")
        if not agreement.by:
            raise ValueError(
                f"path_or_model: not rewritten, since nothing could run both models: {agreement.reason}; "
                "verify=False (--no-verify) rewrites all the same"
            )
    return Rewritten(proto, changes, old, goal, agreement)


def _restate(proto: Any, form: str, approximate: str | None) -> None:
    """What a model that we made says of itself."""
    news = {"gelu_fast.form": form}
    if approximate is not None:
        news |= {"gelu_fast.formula": approximate, "gelu_fast.formula_text": FORMULAS[approximate]}
    for entry in proto.metadata_props:
        entry.value = news.get(entry.key, entry.value)


def rewrite_file(
    path: str | PathLike[str],
    output: str | PathLike[str],
    form: str,
    *,
    opset: int | None = None,
    approximate: str | None = None,
    verify: bool = True,
    overwrite: bool = False,
) -> Rewritten:
    """`rewrite` from file to file. External data goes along, copied under a name of its own.

    Raises
    ------
    FileExistsError, FileNotFoundError, IsADirectoryError, PermissionError
        If `output` exists and `overwrite` is False, has no directory, is one, or can't be written.
    """
    goal = writing.check_path(output, overwrite, "output")
    loaded = load(path)
    done = rewrite_with_report(path, form, opset=opset, approximate=approximate, verify=verify)
    with writing.staged(goal, overwrite) as stage:
        stage.write_as_it_is(done.model, loaded.folder)
        stage.publish()
    return done
