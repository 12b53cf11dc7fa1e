"""Import of Arrow without pandas, in processes that have no use for it."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_ARROW, _PANDAS = "pyarrow", "pandas"


def skip_pandas_import() -> None:
    """Make pyarrow treat pandas as missing in this process, now or once it is loaded; other code can still import it.

    If pandas is installed, pyarrow imports it when it creates its first array. That costs a second of CPU time and
    60 MB in the middle of a run, for a process that has no use for it.
    """
    if _ARROW in sys.modules:
        _create_first_array()
    else:
        sys.meta_path.insert(0, _LaterArrow())


def _create_first_array() -> None:
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas())
    try:
        pa.array([])
    finally:
        del sys.meta_path[0]


class _NoPandas(MetaPathFinder):
    """Import hook that makes `import pandas` fail."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == _PANDAS:
            raise ModuleNotFoundError("pandas is not used here", name=name)


class _LaterArrow(MetaPathFinder):
    """Import hook that creates the first array as soon as pyarrow has been loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _ARROW:
            return None
        sys.meta_path.remove(self)
        specs = (finder.find_spec(name, path, target) for finder in sys.meta_path)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_create(module: ModuleType) -> None:
                execute(module)
                _create_first_array()

            spec.loader.exec_module = execute_and_create  # type: ignore[method-assign]
        return spec
