"""A file of torch's in memory. torch.save writes to it, and torch.load reads from it, as from any file object.

Whatever torch.load would make of the file it makes of this one. The file begins at a page of the payload, behind what
the payload says of itself (`About`): 16 bytes (where the file begins, its length), then JSON.

torch takes checksums of what it writes and never looks at them, and they take longer than the copy. So they are left
out here, and put in where the file is written to storage: other programs do look.
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
"""Flag of a zip entry: sizes and checksum are behind its data."""
IDENTITY, DIGITS = ".data/serialization_id", 40
LOCAL, CRC_IN_DIRECTORY, CRC_IN_DESCRIPTOR = 30, 16, 4
DESCRIPTOR, DIRECTORY, LOCAL_HEADER = b"PK\x07\x08", b"PK\x01\x02", b"PK\x03\x04"


class Writing(io.RawIOBase):
    """Takes what fits; `length` grows on all the same, so that one can say what would have been needed."""

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
    """What is large with all threads of torch, as it copies tensors."""
    if len(source) < LARGE:
        target[:] = source
        return
    import torch

    _be_quiet(torch)
    torch.frombuffer(target, dtype=torch.uint8).copy_(torch.frombuffer(source, dtype=torch.uint8))


def _be_quiet(torch):
    """torch warns once in a process that nobody may write to a tensor over bytes that are read-only; nobody does."""
    global _is_quiet
    if not _is_quiet:
        _is_quiet = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.frombuffer(b"read-only", dtype=torch.uint8)


# -- payloads ----------------------------------------------------------------------------------------------------------
def begin(view, about):
    """Writes what the payload says of itself; where its file goes."""
    text = json.dumps(about).encode()
    where = -(-(PREFIX.size + len(text)) // PAGE) * PAGE
    if where <= len(view):
        view[PREFIX.size : where] = text.ljust(where - PREFIX.size)
    return where


def end(view, where, length):
    """The length of the whole payload."""
    view[: PREFIX.size] = PREFIX.pack(where, length)
    return -(-(where + length) // 8) * 8


def opened(view):
    """(what it says of itself, the bytes of its file). Raises ValueError."""
    where, length = PREFIX.unpack_from(view)
    if where + length > len(view):
        raise ValueError("its file is said to lie outside of it")
    return json.loads(bytes(view[PREFIX.size : where])), view[where : where + length]


@contextlib.contextmanager
def without_checksums():
    """Where this torch has that; of all threads' saves, whose files torch.load reads as well."""
    serialization = sys.modules.get("torch.serialization")
    wanted = getattr(serialization, "get_crc32_options", bool)()
    if not wanted:
        yield
        return
    serialization.set_crc32_options(False)
    try:
        yield
    finally:
        serialization.set_crc32_options(True)


def is_zip(view):
    """What torch writes by default."""
    return bytes(view[:4]) == LOCAL_HEADER


def is_torn(path):
    """Of such a file only the beginning is there, or nothing at all."""
    try:
        with open(path, "rb") as file:
            head = file.read(4)
        return not head or (head == LOCAL_HEADER and not zipfile.is_zipfile(path))
    except OSError:
        return False


# -- checksums ---------------------------------------------------------------------------------------------------------
def checksums(view):
    """[(where, bytes)]: what is to be put into the file so that its checksums are right."""
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
            raise ValueError("the file's directory is not where it should be")
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
    """torch makes it from the checksums, too: it tells two files apart by their ends."""
    digest = hashlib.sha256(b"".join(bytes_there for _, bytes_there in before)).hexdigest()
    return b"%040d" % (int(digest, 16) % 10**DIGITS)
