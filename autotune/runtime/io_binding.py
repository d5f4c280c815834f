"""``IOBinding``, which mirrors onnxruntime's: inputs and outputs bound by name, and caches that stay where they are."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.host.dtypes import numpy_type
from autotune.interface import TensorSpec
from autotune.runtime.generation_executor import GenerationExecutor
from autotune.runtime.key_value_caches import KeyValueCaches
from schedules.vocabulary.choices import did_you_mean
from schedules.vocabulary.errors import UsageError

Array = NDArray[Any]

ONNX_TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
}
"""Types by their numbers in ``TensorProto.DataType``, as onnxruntime gives them."""


class MemoryBinding(ABC):
    """The calls of onnxruntime's binding that take memory, not arrays, and those that wait for devices."""

    @abstractmethod
    def bind_cpu_input(self, name: str, array: Array) -> None:
        """Bind an array as an input."""

    @abstractmethod
    def bind_output(self, name: str, device_type: str = "cpu", *, array: Array | None = None) -> None:
        """Bind an output, to an array if there is one."""

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Read the memory at ``buffer_ptr`` as input ``name`` in the next calls; the caller keeps it.

        Args:
            element_type: NumPy's, or the number of ONNX's.

        Raises:
            UsageError: as ``bind_cpu_input``, or if the memory is not the CPU's or of no such type.
        """
        self.bind_cpu_input(name, _memory(f"input {name!r}", device_type, element_type, shape, buffer_ptr))

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Read an ``OrtValue`` of onnxruntime's, or an array, as input ``name``; what is written into it later counts.

        Raises:
            UsageError: as ``bind_input``.
        """
        self.bind_cpu_input(name, _of_ortvalue(f"input {name!r}", ortvalue))

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Write output ``name`` into an ``OrtValue`` of onnxruntime's, or an array.

        Raises:
            UsageError: as ``bind_output``.
        """
        self.bind_output(name, array=_of_ortvalue(f"output {name!r}", ortvalue))

    def synchronize_inputs(self) -> None:  # noqa: B027  # nothing to do
        """There is nothing to wait for: inputs are in the CPU's memory."""

    def synchronize_outputs(self) -> None:  # noqa: B027  # nothing to do
        """There is nothing to wait for: a call returns when its outputs are written."""


class IOBinding(MemoryBinding):
    """The inputs and outputs that a session runs on, call after call.

    Of a decoder made with ``--generate``, every cache is one buffer that stands for past and present. It is the
    session's unless one is bound to the name of the past; the kernels append to it, and nothing of it is copied.

    Args:
        inputs, outputs: names, in the model's order.
        executor: of a decoder with caches; None for other models.
    """

    def __init__(self, inputs: list[str], outputs: list[str], executor: GenerationExecutor | None) -> None:
        self._input_names, self._output_names, self._executor = inputs, outputs, executor
        pasts = [cache.past for cache in executor.caches] if executor else []
        self._pasts = [inputs[number] for number in pasts]
        self._presents = {outputs[c.present]: inputs[c.past] for c in executor.caches} if executor else {}
        self._given: dict[str, Array] = {}
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array | None] = {}
        self._made: dict[str, Array] = {}
        self._caches: KeyValueCaches | None = None

    # As onnxruntime.

    def bind_cpu_input(self, name: str, array: Array) -> None:
        """Read ``array`` as input ``name`` in the next calls; a past is bound as the buffer of that cache.

        Raises:
            UsageError: if there is no such input, or the buffer of a cache has another shape or type.
        """
        if name not in self._input_names:
            near = did_you_mean(name, self._input_names)
            raise UsageError(f"the model has no input {name!r}; {near}its inputs are {self._input_names}")
        if name in self._pasts:
            self._given[name] = array
            self._caches = None
        else:
            self._inputs[name] = np.asarray(array)

    def bind_output(  # as onnxruntime's, and ``array``
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
        *,
        array: Array | None = None,
    ) -> None:
        """Ask for output ``name``; into ``array``, or the memory at ``buffer_ptr``. A present is where its past is.

        Args:
            element_type, shape: of the memory; the type is NumPy's, or the number of ONNX's.

        Raises:
            UsageError: if there is no such output, the device is no CPU, nothing can be written into ``array``, or a
                present is bound elsewhere than its past.
        """
        if name not in self._output_names:
            near = did_you_mean(name, self._output_names)
            raise UsageError(f"the model has no output {name!r}; {near}its outputs are {self._output_names}")
        if device_type != "cpu":
            raise UsageError(f"output {name!r} is bound to {device_type!r}; outputs are in the CPU's memory")
        if buffer_ptr is not None:
            array = _memory(f"output {name!r}", device_type, element_type, shape, buffer_ptr)
        if array is not None and not (isinstance(array, np.ndarray) and array.flags.writeable):
            what = "read-only" if isinstance(array, np.ndarray) else f"of type {type(array).__name__}"
            raise UsageError(f"the array for output {name!r} is {what}; give a writeable NumPy array, or none")
        past = self._presents.get(name)
        if past is None:
            self._outputs[name] = array
        elif array is not None and self._given.get(past) is not array:
            raise UsageError(f"{name!r} is written where {past!r} lies; bind the same array to both, or neither")

    def clear_binding_inputs(self) -> None:
        """Forget inputs; caches stay."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget outputs; caches stay."""
        self._outputs.clear()

    def get_outputs(self) -> list[Array]:
        """Return the outputs of the last call, in the order of binding; all but presents where none was bound."""
        return list(self._made.values())

    copy_outputs_to_cpu = get_outputs

    # Caches.

    @property
    def caches(self) -> KeyValueCaches:
        """The caches in use.

        Raises:
            UsageError: if the model has none, or no call was made yet.
        """
        if self._caches is None:
            raise UsageError("no caches are in use yet: make a call first, or bind buffers to the pasts")
        return self._caches

    @property
    def length(self) -> int:
        """Positions in use."""
        return 0 if self._caches is None else self._caches.length

    def rewind(self, length: int = 0) -> None:
        """Go on behind position ``length``; 0 begins anew."""
        if self._caches is not None:
            self._caches.rewind(length)

    def cache_specs(self, batch: int = 1) -> list[TensorSpec]:
        """Name, shape and type of every buffer."""
        return self._executor.cache_specs(batch) if self._executor else []

    def empty_cache(self, name: str, batch: int = 1) -> Array:
        """A buffer of zeros for the cache ``name``, aligned as kernels need it.

        Raises:
            UsageError: if the model has no such cache.
        """
        spec = next((spec for spec in self.cache_specs(batch) if spec.name == name), None)
        if spec is None:
            raise UsageError(f"the model has no cache {name!r}; its caches are {self._pasts}")
        return KeyValueCaches([spec]).buffers[0]

    # For the session.

    def feed(self) -> dict[str, Array]:
        """The bound inputs but caches.

        Raises:
            UsageError: naming the input that is missing.
        """
        for name in self._input_names:
            if name not in self._inputs and name not in self._pasts:
                raise UsageError(f"input {name!r} is not bound; call bind_cpu_input({name!r}, array)")
        return self._inputs

    def caches_for(self, batch: int) -> KeyValueCaches:
        """The caches for ``batch`` sequences; made in the first call.

        Raises:
            UsageError: if they are for another number, or a buffer of the caller's does not fit.
        """
        assert self._executor is not None
        if self._caches is None:
            self._caches = KeyValueCaches(self._executor.cache_specs(batch), self._given)
        if len(self._caches.lengths) != batch:
            raise UsageError(
                f"{batch} sequences, and the caches are for {len(self._caches.lengths)}; make a binding for each batch"
            )
        return self._caches

    def keep(self, outputs: Mapping[str, Array]) -> None:
        """Keep the outputs of a call.

        Raises:
            UsageError: naming an output that does not fit the array that is bound to it; none is written then.
        """
        for name, target in self._outputs.items():
            if target is not None and (target.shape, target.dtype) != (outputs[name].shape, outputs[name].dtype):
                raise UsageError(
                    f"output {name!r} has shape {outputs[name].shape} and type {outputs[name].dtype}, "
                    f"and the array bound to it {target.shape} and {target.dtype}; bind one that fits"
                )
        self._made = {}
        for name in self._outputs or [name for name in outputs if name not in self._presents]:
            target = self._outputs.get(name)
            if target is not None:
                np.copyto(target, outputs[name])
            self._made[name] = outputs[name] if target is None else target


class _Memory:
    """Memory that something else owns, as NumPy reads it."""

    def __init__(self, address: int, size: int, owner: object) -> None:
        self.__array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, False)}
        self._owner = owner  # lives as long as the array


def _memory(
    what: str, device: str, element_type: Any, shape: Sequence[int] | None, address: int, owner: object = None
) -> Array:
    """The array of that type and shape at ``address``.

    Raises:
        UsageError: if that is no memory of the CPU's, or no type or shape.
    """
    if device != "cpu":
        raise UsageError(f"{what} is in the memory of {device!r}; copy it to the CPU's and bind that")
    try:
        dtype = numpy_type(ONNX_TYPES[element_type]) if isinstance(element_type, int) else np.dtype(element_type)
        sizes = tuple(map(int, shape))  # type: ignore[arg-type]  # None is refused below
    except (KeyError, TypeError, ValueError):
        dtype, sizes = np.dtype(object), ()
    if dtype.hasobject or element_type is None or min(sizes, default=0) < 0:
        raise UsageError(
            f"{what} has type {element_type!r} and shape {shape!r}; give a type of numbers and a shape, or an array"
        )
    if 0 in sizes:
        return np.empty(sizes, dtype)
    return np.asarray(_Memory(address, math.prod(sizes) * dtype.itemsize, owner)).view(dtype).reshape(sizes)


def _of_ortvalue(what: str, value: Any) -> Array:
    """The memory of an ``OrtValue``; an array is itself.

    Raises:
        UsageError: if it is neither, or not in the CPU's memory.
    """
    if isinstance(value, np.ndarray):
        return value
    if not hasattr(value, "data_ptr") or not value.is_tensor():
        raise UsageError(f"{what} is bound to {type(value).__name__}; give an OrtValue with a tensor, or a NumPy array")
    element_type = value.element_type()
    pointer = value.data_ptr() if element_type in ONNX_TYPES else 0
    return _memory(what, value.device_name().lower(), element_type, value.shape(), pointer, value)
