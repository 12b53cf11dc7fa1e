"""Cache of the kernels' machine code: compiled by Numba once per machine, stored in a file, loaded without Numba.

Importing Numba takes longer than most searches, importing llvmlite a tenth of that. So the code is written to
`__pycache__` beside this file, or to the user's cache if that is not writable, and reused while kernels, compiler and
processor are the same. `python -m scheduler.partitioning.jit_cache` compiles it in advance, which set-up does.
"""

import inspect
import os
from array import array
from collections.abc import Callable
from ctypes import CFUNCTYPE, byref, c_double, c_int32, c_int64, c_void_p
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

from inventory.atomic_files import replace_file
from inventory.errors import UnfitError
from scheduler.partitioning import (
    kernels_annealing,
    kernels_bisection,
    kernels_chains,
    kernels_coarsening,
    kernels_halving,
    kernels_hops,
    kernels_pricing,
    kernels_refinement,
    kernels_regions,
)
from scheduler.partitioning.rows import Floats, Ints

Kernel = Callable[..., int]

ENTRIES: tuple[Kernel, ...] = (
    kernels_refinement.cut,
    kernels_coarsening.coarsen,
    kernels_coarsening.reach,
    kernels_bisection.bisect,
    kernels_refinement.refine,
    kernels_regions.rework,
    kernels_pricing.price,
    kernels_hops.anneal_hops,
    kernels_chains.walk,
    kernels_chains.fill,
    kernels_chains.total,
)
"""Kernels called from Python; they call the others."""

INNER: tuple[Callable[..., float | None], ...] = (
    kernels_annealing.drawn,
    kernels_annealing.tally,
    kernels_annealing.shift,
    kernels_annealing.mark,
    kernels_annealing.switch,
    kernels_annealing.anneal,
    kernels_hops.hop_rise,
    kernels_hops.link_shift,
    kernels_hops.busiest,
    kernels_hops.link,
    kernels_coarsening.cluster,
    kernels_coarsening.contract,
    kernels_halving.lift,
    kernels_halving.sink,
    kernels_halving.drop,
    kernels_halving.halve,
    kernels_refinement.best_move,
    kernels_chains.rank,
    kernels_chains.arrange,
)
"""The other kernels, each before those that call it."""

TYPES: dict[Any, Any] = {int: c_int64, float: c_double, Ints: c_void_p, Floats: c_void_p}
"""C types of the kernels' annotations."""


@cache
def compiled_kernels() -> SimpleNamespace:
    """Return the kernels as machine code, which take arrays as `array`; compile them first if no file exists.

    Compiling takes some seconds.
    """
    return load()


def load() -> SimpleNamespace:
    """Return the kernels, loaded from the file."""
    try:
        import llvmlite.binding as llvm  # type: ignore[import-untyped]
    except ModuleNotFoundError as fault:
        raise UnfitError("Numba is not installed in this environment: pip install 'millrace[controller]'") from fault
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    kept = [folder / _file_name(llvm) for folder in _folders()]
    code = next((file.read_bytes() for file in kept if file.is_file()), None)
    if code is None:
        code = machine.emit_object(_translated(llvm))
        _keep(code, kept)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return SimpleNamespace(**{kernel.__name__: _callable(engine, kernel) for kernel in ENTRIES})


def _file_name(llvm: Any) -> str:
    """Return a file name that depends on everything the machine code depends on."""
    from importlib.metadata import version

    modules = sorted({inspect.getfile(kernel) for kernel in (*ENTRIES, *INNER)})
    sources = [Path(file).read_text() for file in (*modules, __file__)]
    made_by = [version("numba"), version("llvmlite"), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    return f"kernels.{sha256(chr(0).join([*sources, *made_by]).encode()).hexdigest()[:16]}.o"


def _folders() -> list[Path]:
    """Return the folders for machine code, the preferred one first."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [Path(__file__).parent / "__pycache__", home / "millrace"]


def _keep(code: bytes, files: list[Path]) -> None:
    """Write the first of `files` that is writable; several processes may do so at once."""
    for file in files:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(file, code)
        except OSError:
            continue
        return


def _translated(llvm: Any) -> Any:
    """Return the kernels as one LLVM module, in which entry points have their own names."""
    import numba
    from numba import float64, int64, types

    njit: Any = numba.njit
    pointer: Any = types.CPointer

    pointers = {Ints: pointer(int64), Floats: pointer(float64)}
    numba_types: dict[Any, Any] = {int: int64, float: float64, **pointers}
    inner: dict[str, Any] = {}

    def plain(kernel: Any) -> FunctionType:
        return FunctionType(kernel.__code__, {**kernel.__globals__, **inner}, kernel.__name__)

    # Without Numba's Python wrappers the code needs no part of Numba at run time.
    options: dict[str, Any] = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    for kernel in INNER:
        inner[kernel.__name__] = njit(**options)(plain(kernel))
    whole = llvm.parse_assembly("")
    for kernel in ENTRIES:
        signature = int64(*(numba_types[kind] for kind in _kinds(kernel)))
        made = njit(signature, **options)(plain(kernel))
        (overload,) = made.overloads.values()
        module = llvm.parse_assembly(made.inspect_llvm(overload.signature.args))
        module.get_function(overload.fndesc.llvm_func_name).name = kernel.__name__
        whole.link_in(module)
    return whole


def _kinds(kernel: Kernel) -> list[Any]:
    """Return the types of the kernel's arguments."""
    return [kernel.__annotations__[argument] for argument in inspect.signature(kernel).parameters]


def _callable(engine: Any, kernel: Kernel) -> Kernel:
    """Return the kernel as a Python function; Numba's functions return a status, and the result through a pointer."""
    prototype = CFUNCTYPE(c_int32, c_void_p, c_void_p, *(TYPES[kind] for kind in _kinds(kernel)))
    function: Any = prototype(engine.get_function_address(kernel.__name__))
    function.engine = engine  # the code lives only while the engine does

    def call(*arguments: Any) -> int:
        result, error = c_int64(), c_void_p()
        plain = [each.buffer_info()[0] if isinstance(each, array) else each for each in arguments]
        status = function(byref(result), byref(error), *plain)
        if status != 0:
            raise ArithmeticError(f"kernel {kernel.__name__} ended with status {status}")
        return result.value

    return call


if __name__ == "__main__":
    load()
