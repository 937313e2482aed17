"""A torch file in memory, which torch.save writes and torch.load reads like any file object.

torch.load returns the same as from a file on storage. The file begins at a page boundary of the payload, after its
header: 16 bytes (offset and length of the file), then JSON.

torch computes checksums when it writes and never checks them; they take longer than the copy. So they are left out in
memory and added when the file is written to storage, because other programs check them.
"""

import contextlib
import hashlib
import io
import json
import os
import struct
import sys
import warnings
import zipfile
import zlib

PREFIX = struct.Struct("<QQ")
PAGE = 4096
PIECE = LARGE = 1 << 20
_is_quiet = False
CRC = struct.Struct("<I")
HAS_DESCRIPTOR = 8
"""Flag of a zip entry whose sizes and checksum follow its data."""
IDENTITY, DIGITS = ".data/serialization_id", 40
LOCAL, CRC_IN_DIRECTORY, CRC_IN_DESCRIPTOR = 30, 16, 4
DESCRIPTOR, DIRECTORY, LOCAL_HEADER = b"PK\x07\x08", b"PK\x01\x02", b"PK\x03\x04"


class Writing(io.RawIOBase):
    """Stores what fits. `length` counts all bytes, so an error can name the size that is needed."""

    def __init__(self, view):
        super().__init__()
        self.view, self.length = view, 0

    def writable(self):
        return True

    def write(self, data):
        piece = memoryview(data).cast("B")
        begin, self.length = self.length, self.length + len(piece)
        if self.fits():
            _copy(self.view[begin : self.length], piece)
        return len(piece)

    def fits(self):
        return self.length <= len(self.view)


class Reading(io.RawIOBase):
    def __init__(self, view):
        super().__init__()
        self.view, self.at = view, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=os.SEEK_SET):
        self.at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: len(self.view)}[whence])
        return self.at

    def tell(self):
        return self.at

    def readinto(self, into):
        count = max(0, min(len(into), len(self.view) - self.at))
        _copy(memoryview(into).cast("B")[:count], self.view[self.at : self.at + count])
        self.at += count
        return count


def _copy(target, source):
    """Copies large pieces with all threads of torch, as torch copies tensors."""
    if len(source) < LARGE:
        target[:] = source
        return
    import torch

    _be_quiet(torch)
    torch.frombuffer(target, dtype=torch.uint8).copy_(torch.frombuffer(source, dtype=torch.uint8))


def _be_quiet(torch):
    """Triggers torch's warning about tensors over read-only bytes, once and silently; the hooks never write to them."""
    global _is_quiet
    if not _is_quiet:
        _is_quiet = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.frombuffer(b"read-only", dtype=torch.uint8)


# -- payloads ----------------------------------------------------------------------------------------------------------
def begin(view, about):
    """Writes the header of a payload; returns the offset of its file."""
    text = json.dumps(about).encode()
    where = -(-(PREFIX.size + len(text)) // PAGE) * PAGE
    if where <= len(view):
        view[PREFIX.size : where] = text.ljust(where - PREFIX.size)
    return where


def end(view, where, length):
    """Completes the header; returns the length of the whole payload."""
    view[: PREFIX.size] = PREFIX.pack(where, length)
    return -(-(where + length) // 8) * 8


def opened(view):
    """(header, bytes of the file). Raises ValueError."""
    where, length = PREFIX.unpack_from(view)
    if where + length > len(view):
        raise ValueError("invalid payload: its file lies outside of it")
    return json.loads(bytes(view[PREFIX.size : where])), view[where : where + length]


@contextlib.contextmanager
def without_checksums():
    """Turns torch's checksums off if this torch can. It affects the saves of all threads; torch.load reads these
    files."""
    serialization = sys.modules.get("torch.serialization")
    computes = getattr(serialization, "get_crc32_options", bool)()
    if not computes:
        yield
        return
    serialization.set_crc32_options(False)
    try:
        yield
    finally:
        serialization.set_crc32_options(True)


def is_zip(view):
    """Whether the file has torch's default format."""
    return bytes(view[:4]) == LOCAL_HEADER


def is_torn(path):
    """Whether the file is empty, or only the beginning of such a file."""
    try:
        with open(path, "rb") as file:
            head = file.read(4)
        return not head or (head == LOCAL_HEADER and not zipfile.is_zipfile(path))
    except OSError:
        return False


# -- checksums ---------------------------------------------------------------------------------------------------------
def checksums(view):
    """[(offset, bytes)] to write into the file so that its checksums are right."""
    with zipfile.ZipFile(io.BufferedReader(Reading(view))) as file:
        entries, directory = file.infolist(), file.start_dir
    found = []
    for entry in entries:
        at = entry.header_offset
        named, extra = struct.unpack_from("<HH", view, at + LOCAL - 4)
        data = at + LOCAL + named + extra
        if entry.filename.endswith(IDENTITY) and entry.file_size == DIGITS:
            found.append((data, _identity(found)))
            crc = zlib.crc32(found[-1][1])
        else:
            crc = _sum(view, data, data + entry.file_size)
        behind = data + entry.file_size
        if view[directory : directory + 4] != DIRECTORY:
            raise ValueError("invalid file: its zip directory is not at its place")
        found.append((directory + CRC_IN_DIRECTORY, CRC.pack(crc)))
        if entry.flag_bits & HAS_DESCRIPTOR and view[behind : behind + 4] == DESCRIPTOR:
            found.append((behind + CRC_IN_DESCRIPTOR, CRC.pack(crc)))
        directory += 46 + sum(struct.unpack_from("<HHH", view, directory + 28))
    return found


def _sum(view, begin, end):
    crc = 0
    for start in range(begin, end, PIECE):
        crc = zlib.crc32(view[start : min(start + PIECE, end)], crc)
    return crc


def _identity(before):
    """torch derives its serialization id from the checksums too, so that files with different content differ in it."""
    digest = hashlib.sha256(b"".join(bytes_there for _, bytes_there in before)).hexdigest()
    return b"%040d" % (int(digest, 16) % 10**DIGITS)
