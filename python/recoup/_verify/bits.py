"""Digests and bytes of tensors, read in small pieces, so that they fit in any budget."""

import functools
import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

_PIECE_BYTES = 1 << 16


def digest(tensor: Tensor) -> str:
    """A digest of the type, the shape and the bits of a tensor of any kind."""
    sha = hashlib.sha256()
    with torch.no_grad(), torch._C.DisableTorchFunction(), _disable_current_modes():
        for plain in _plain_tensors(tensor.detach()):
            sha.update(f"{tensor.layout} {plain.dtype} {tuple(plain.shape)};".encode())
            for piece in pieces(plain):
                sha.update(piece)
    return sha.hexdigest()[:32]


def digest_of_storage(tensor: Tensor) -> str:
    """A digest of all bytes of a dense tensor's storage."""
    with torch.no_grad(), torch._C.DisableTorchFunction(), _disable_current_modes():
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        return digest(whole.set_(tensor.untyped_storage()))


def digest_of_bytes(data: bytes) -> str:
    """The same for bytes."""
    return hashlib.sha256(data).hexdigest()[:32]


def pieces(tensor: Tensor) -> Iterator[bytes]:
    """The elements of a dense tensor in order, as bytes."""
    buffer = _buffer()
    most = _PIECE_BYTES // tensor.element_size()
    for part in _parts(tensor, most):
        piece = buffer[: part.numel() * part.element_size()]
        piece.view(part.dtype).view(part.shape).copy_(part)
        yield piece.numpy().tobytes()


def has_storage(tensor: Tensor) -> bool:
    """Whether the tensor is dense, and holds its elements itself."""
    return (
        tensor.layout == torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and not is_traceable_wrapper_subclass(tensor)
    )


@functools.cache
def _buffer() -> Tensor:
    """The memory of one piece, which a scope charges once. It belongs to no scope's pool."""
    return torch.frombuffer(bytearray(_PIECE_BYTES), dtype=torch.uint8)


def _parts(tensor: Tensor, most: int) -> Iterator[Tensor]:
    """Views of at most `most` elements, in the order of the elements."""
    if tensor.numel() == 0 or tensor.is_meta:
        return
    if tensor.numel() <= most:
        yield tensor
        return
    rows = most // (tensor.numel() // len(tensor))
    if rows:
        yield from torch.split(tensor, rows)
        return
    for row in tensor:
        yield from _parts(row, most)


def _scales(tensor: Tensor) -> Iterator[Tensor]:
    """What the integers of a quantized tensor mean."""
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        yield torch.tensor([tensor.q_scale(), tensor.q_zero_point()], dtype=torch.float64)
        return
    yield tensor.q_per_channel_scales()
    yield tensor.q_per_channel_zero_points()
    yield torch.tensor(tensor.q_per_channel_axis())


def _plain_tensors(tensor: Tensor) -> Iterator[Tensor]:
    """The dense tensors that hold the elements."""
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _plain_tensors(getattr(tensor, name))
    elif tensor.layout == torch.sparse_coo:
        yield tensor._indices()
        yield tensor._values()
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    elif tensor.is_quantized:
        yield tensor.int_repr()
        yield from _scales(tensor)
    else:
        yield tensor
