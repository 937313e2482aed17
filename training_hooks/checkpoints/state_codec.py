"""Encodes a state in memory: its pickled structure, and the raw bytes of its tensors.

A payload has 16 bytes (offset and length of the pickled part), then the storages of the tensors, each aligned to 64
bytes, then the pickled part, in which a plain tensor is a reference to its storage. Tensors that share a storage share
it after loading. Another kind of tensor (a subclass, a sparse one) is pickled by its own method, down to the plain
tensors in it. A script with tensors has imported torch already.
"""

import io
import pickle
import struct
import sys
import zlib

from . import cow_tensors

ALIGNED = 64
PREFIX = struct.Struct("<QQ")
BLOCK = 1 << 17
"""Bytes per partial sum of the quick checksum: few enough that torch sums them in one thread."""
SUMS = struct.Struct("<q")
SHARDED = ("FullyShardedDataParallel", "FSDPModule", "DTensor", "ShardedTensor")
"""Names of torch classes whose complete state is on no rank."""


class NotSaved(Exception):
    """A part of the state cannot be saved; the message names it."""


# -- packing -----------------------------------------------------------------------------------------------------------
class Packed:
    """A state that is ready to be copied: `length` bytes. It references what it will copy."""

    def __init__(self, state, refused=()):
        self.storages, self._places = [], {}
        """(bytes of a storage as a tensor, offset in the payload) of each storage."""
        self._end = ALIGNED
        self.skeleton = _dumped(state, self._reference, refused)
        self.length = self._end + -(-len(self.skeleton) // 8) * 8

    def _reference(self, tensor):
        import torch

        storage = tensor.untyped_storage()
        key = (storage.data_ptr(), storage.nbytes(), str(tensor.device))
        if key not in self._places:
            self._places[key] = self._end
            if storage.nbytes():
                whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
                self.storages.append((whole, self._end))
            self._end += -(-storage.nbytes() // ALIGNED) * ALIGNED
        return (
            (self._places[key], storage.nbytes(), str(tensor.device), tensor.dtype)
            + (tensor.storage_offset(), tuple(tensor.size()), tensor.stride(), tensor.requires_grad)
        )  # fmt: skip

    def copy_to(self, memory, offset):
        """`memory` is a writable buffer with `length` bytes from `offset`."""
        for whole, at in self.storages:
            _bytes_of(memory, offset + at, whole.numel()).copy_(whole)
        end = offset + self.length
        memory[end - self.length : end - self.length + PREFIX.size] = PREFIX.pack(self._end, len(self.skeleton))
        padded = self.skeleton + bytes(self.length - self._end - len(self.skeleton))
        memory[offset + self._end : end] = padded


class _Pickler(pickle.Pickler):
    """Defined once: a class created in each call would keep the state alive until the next garbage collection."""

    def __init__(self, file, reference, refused):
        super().__init__(file, 4)
        self.reference, self.refused = reference, refused

    def persistent_id(self, thing):
        if self.refused and any(kind.__name__ in self.refused for kind in type(thing).__mro__):
            raise NotSaved("the state is sharded over the ranks (%s)" % type(thing).__name__)
        return self.reference(thing) if _is_plain(thing) else None


def _dumped(state, reference, refused):
    file = io.BytesIO()
    try:
        _Pickler(file, reference, refused).dump(state)
    except NotSaved:
        raise
    except Exception as error:  # a user's class may raise anything
        raise NotSaved("the state cannot be pickled: %s: %s" % (type(error).__name__, error))
    return file.getvalue()


def _is_plain(thing):
    torch = sys.modules.get("torch")
    if torch is None or type(thing) is not torch.Tensor:
        return False
    if thing.layout is not torch.strided or thing.is_quantized or thing.device.type == "meta" or vars(thing):
        return False
    return not (thing.is_conj() or thing.is_neg())


# -- unpacking ---------------------------------------------------------------------------------------------------------
def unpacked(memory, offset, length, map_location="cpu", copy=True, lend=None):
    """Decodes a state. Without `copy` its tensors use the memory's own bytes, on the CPU. With `lend(at, count)`
    tensors on the CPU use the buffer that it returns for these bytes of the payload. Raises ValueError if the bytes are
    not a payload, and what unpickling raises."""
    where, size = PREFIX.unpack_from(memory, offset)
    if where + size > length:
        raise ValueError("invalid payload: its pickled part lies outside of it")
    made = {}

    def load(reference):
        at, count, device, dtype, *view = reference
        if at + count > length:
            raise ValueError("invalid payload: a tensor lies outside of it")
        if at not in made:
            target = _device(device, map_location) if copy else ""
            if lend is not None and count >= cow_tensors.LEAST and str(target) == "cpu":
                made[at] = _bytes_of(lend(at, count), 0, count).untyped_storage()
            else:
                made[at] = _storage(memory, offset + at, count, device, target)
        return _tensor(made[at], dtype, *view)

    return _loaded(memory[offset + where : offset + where + size], load)


def _device(saved, map_location):
    """The device for a storage that was saved on `saved`, as in torch.load; a function decides for each storage."""
    if isinstance(map_location, dict):
        return map_location.get(saved, saved)
    return saved if map_location is None else map_location


def _storage(memory, at, count, saved, target):
    """`target`: a device or a function; "" leaves the bytes where they are."""
    import torch

    if not count:
        return torch.empty(0, dtype=torch.uint8, device="cpu").untyped_storage()
    there = _bytes_of(memory, at, count)
    if callable(target):
        own = torch.empty(count, dtype=torch.uint8, device="cpu").copy_(there).untyped_storage()
        return target(own, saved) or own
    if not target:
        return there.untyped_storage()
    return torch.empty(count, dtype=torch.uint8, device=target).copy_(there).untyped_storage()


def _tensor(storage, dtype, first, size, stride, requires_grad):
    import torch

    tensor = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, first, size, stride)
    return tensor.requires_grad_(requires_grad)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, reference):
        super().__init__(file)
        self.reference = reference

    def persistent_load(self, reference):
        return self.reference(reference)


def _loaded(data, reference):
    return _Unpickler(io.BytesIO(data), reference).load()


def _bytes_of(memory, at, count):
    import torch

    return torch.frombuffer(memory, dtype=torch.uint8, count=count, offset=at)


# -- checksums ---------------------------------------------------------------------------------------------------------
class Sums:
    """Both checksums of a payload, computed in pieces without torch's thread pool. `add` takes at most 1 MiB."""

    PIECE = 1 << 20

    def __init__(self):
        self.crc32, self.quick = 0, 0

    def add(self, memory, at, count):
        with memoryview(memory) as view, view[at : at + count] as piece:
            self.crc32 = zlib.crc32(piece, self.crc32)
        for start in range(at, at + count, BLOCK):
            words = min(BLOCK, at + count - start) // 8
            self.quick = zlib.crc32(SUMS.pack(_words(memory, start, words).sum().item()), self.quick)


def quick_sum(memory, at, count):
    """The same value as `Sums.quick`, computed by all threads of torch: CRC-32 of the 64-bit sums of the blocks."""
    whole = count // BLOCK
    found = zlib.crc32(b"")
    if whole:
        sums = _words(memory, at, whole * BLOCK // 8).view(whole, -1).sum(1).tolist()
        found = zlib.crc32(struct.pack("<%dq" % whole, *sums), found)
    if count % BLOCK:
        rest = _words(memory, at + whole * BLOCK, count % BLOCK // 8)
        found = zlib.crc32(SUMS.pack(rest.sum().item()), found)
    return found


def _words(memory, at, count):
    import torch

    return torch.frombuffer(memory, dtype=torch.int64, count=count, offset=at)
