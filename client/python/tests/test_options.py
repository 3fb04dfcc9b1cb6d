"""The options of loaders: their signature, their text, their types, and errors for unknown ones."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import larder
from larder._options import BatchOptions, LoaderOptions, OrderOptions, checked, options_of


@pytest.mark.parametrize("kind", [OrderOptions, BatchOptions, LoaderOptions])
def test_unknown_option_error_names_the_right_spelling(kind: type) -> None:
    for wrong, right in [
        ("shufle", "shuffle"),
        ("world", "world_size"),
        ("batchsize", "batch_size"),
    ]:
        with pytest.raises(TypeError) as raised:
            checked(kind, {wrong: 1}, "order")
        said = f"order() got an unexpected keyword argument '{wrong}'. Did you mean '{right}'?"
        assert str(raised.value) == said
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'colour'$"):
        checked(kind, {"colour": 1})


def test_signature_and_help_have_each_option() -> None:
    signature = inspect.signature(larder.Dataset.loader)
    text = inspect.getdoc(larder.Dataset.loader) or ""
    names = list(options_of(LoaderOptions))
    assert list(signature.parameters) == ["self", "batch_size", *names]
    for name in names:
        assert f"\n    {name}: " in text, name
    assert "\n    options:" not in text
    assert signature.parameters["shuffle"].default == "auto"
    assert signature.parameters["device"].kind is inspect.Parameter.KEYWORD_ONLY


def test_type_checker_knows_each_option(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    calls = ["seed=1", "seed='one'", "shufle=True", "last='drop', decode=None", "last='keep'"]
    program = tmp_path / "calls.py"
    lines = [f"ds.loader(8, {call})" for call in calls]
    program.write_text("\n".join(["import larder", "ds: larder.Dataset", *lines, ""]))
    package = Path(larder.__file__).parent.parent
    settings = tmp_path / "mypy.ini"
    settings.write_text(f"[mypy]\nmypy_path = {package}\nfollow_imports = silent\n")
    options = ["--config-file", str(settings), "--cache-dir", str(tmp_path / "cache")]
    said, _, _ = api.run([*options, "--ignore-missing-imports", str(program)])
    wrong = [line.split(":")[1] for line in said.splitlines() if ": error:" in line]
    assert wrong == ["4", "5", "7"], said
    assert 'Unexpected keyword argument "shufle"' in said
