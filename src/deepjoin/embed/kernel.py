"""One multiplication of 8-bit matrices with 32-bit sums, by ONNX Runtime on all machines.

The graph is a single ``MatMulInteger`` node, written down here as the bytes of its format, so
that running it needs no library that builds graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint8]
Signed = npt.NDArray[np.int8]
Sums = npt.NDArray[np.int32]

#: What an unsigned code stands for is the code less this.
ZERO_POINT = 128
#: Processors without 8-bit dot products add two products in 16 bits: 2 * 255 * 64 < 2**15.
LARGEST_SIGNED = 64

_UINT8, _INT8, _INT32 = 2, 3, 6


@cache
def multiplier(threads: int = 2) -> Callable[[Codes, Signed], Sums]:
    """Return a function that multiplies codes, row by row, with the columns of a signed matrix."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Waiting threads that spin would take the time of whoever shares the machine.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(graph(), options, providers=["CPUExecutionProvider"])
    zero_point = np.array(ZERO_POINT, np.uint8)

    def multiply(codes: Codes, signed: Signed) -> Sums:
        sums: Sums = session.run(None, {"codes": codes, "signed": signed, "zero": zero_point})[0]
        return sums

    return multiply


def graph() -> bytes:
    """Write the model: sums = (codes - zero) @ signed."""
    node = b"".join(_text(1, name) for name in ("codes", "signed", "zero"))
    node += _text(2, "sums") + _text(4, "MatMulInteger")
    body = _message(1, node) + _text(2, "multiply")
    for name, kind, dimensions in (("codes", _UINT8, 2), ("signed", _INT8, 2), ("zero", _UINT8, 0)):
        body += _message(11, _tensor(name, kind, dimensions))
    body += _message(12, _tensor("sums", _INT32, 2))
    operators = _text(1, "") + _number(2, 13)
    return _number(1, 7) + _message(7, body) + _message(8, operators)


def _tensor(name: str, kind: int, dimensions: int) -> bytes:
    shape = b"".join(_message(1, _text(2, f"{name}_{i}")) for i in range(dimensions))
    return _text(1, name) + _message(2, _message(1, _number(1, kind) + _message(2, shape)))


def _number(field: int, value: int) -> bytes:
    return bytes([field << 3, value])


def _message(field: int, content: bytes) -> bytes:
    length = len(content)
    size = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
    return bytes([field << 3 | 2]) + size + content


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())
