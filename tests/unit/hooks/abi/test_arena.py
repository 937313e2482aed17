"""The checkpoint memory: which copies are valid, and which one a save may overwrite."""

import os

import pytest

from training_hooks.abi import arena

SIZE = 1 << 20


@pytest.fixture
def memory(tmp_path):
    path = arena.path_of(str(tmp_path))
    arena.allot(path, SIZE)
    fd = os.open(path, os.O_RDWR)
    yield fd
    os.close(fd)


def write(fd, divided, slot, step, sealed=1, generation=1):
    sequence = arena.begin(fd, divided, slot)
    head = arena.Head(arena.VERSION, sequence, step, generation, 0, 2, divided.kind, sealed, 100, 7, 8)
    arena.put(fd, divided, slot, head)
    return head


def test_all_pages_are_allocated_from_the_start(tmp_path):
    path = arena.path_of(str(tmp_path))
    arena.allot(path, SIZE + 17)
    found = os.stat(path)
    assert (found.st_size, found.st_blocks * 512 >= SIZE) == (SIZE, True)
    assert os.listdir(str(tmp_path)) == [arena.NAME]


def test_memory_of_the_same_size_is_left_as_it_is(tmp_path, memory):
    before = os.fstat(memory)
    arena.allot(arena.path_of(str(tmp_path)), SIZE)
    assert os.stat(arena.path_of(str(tmp_path))).st_ino == before.st_ino


def test_memory_of_another_size_is_replaced_and_a_mapping_stays_valid(tmp_path, memory):
    arena.allot(arena.path_of(str(tmp_path)), 2 * SIZE)
    assert os.stat(arena.path_of(str(tmp_path))).st_size == 2 * SIZE
    assert os.fstat(memory).st_size == SIZE


def test_a_failed_allocation_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match=r"No space|too large"):
        arena.allot(arena.path_of(str(tmp_path)), 1 << 60)
    assert os.listdir(str(tmp_path)) == []


@pytest.mark.parametrize(("kind", "local_world", "slots"), [(arena.REPLICATED, 4, 2), (arena.SHARDED, 4, 16)])
def test_it_is_divided_once_for_a_kind(memory, kind, local_world, slots):
    assert arena.division(memory) is None
    divided = arena.divide(memory, kind, local_world)
    assert (divided.slots, divided.size % arena.PAGE) == (slots, 0)
    assert arena.place(divided, slots - 1) + divided.size <= SIZE
    head = write(memory, divided, slots - 1, 3)
    assert arena.divide(memory, kind, local_world) == arena.division(memory) == divided
    assert arena.head(memory, divided, slots - 1) == head


def test_another_kind_clears_all(memory):
    divided = arena.divide(memory, arena.REPLICATED, 1)
    write(memory, divided, 0, 3)
    arena.keep(memory, 3)
    divided = arena.divide(memory, arena.SHARDED, 1)
    assert arena.kept(memory) is None
    assert arena.copies(memory, divided, range(divided.slots)) == []


def test_a_slot_that_is_being_written_has_no_copy(memory):
    divided = arena.divide(memory, arena.REPLICATED, 1)
    write(memory, divided, 0, 3)
    arena.begin(memory, divided, 0)
    assert arena.head(memory, divided, 0) is None
    assert write(memory, divided, 0, 4).sequence % 2 == 0
    assert arena.head(memory, divided, 0).step == 4


def test_a_damaged_head_is_not_a_copy(memory):
    divided = arena.divide(memory, arena.REPLICATED, 1)
    write(memory, divided, 1, 3)
    for at in range(arena.HEAD.size + arena.SUM.size):
        where = arena.place(divided, 1) + at
        byte = os.pread(memory, 1, where)
        os.pwrite(memory, bytes([byte[0] ^ 0x41]), where)
        assert arena.head(memory, divided, 1) is None
        os.pwrite(memory, byte, where)
    assert arena.head(memory, divided, 1).step == 3


def test_a_head_of_a_newer_layout_is_not_a_copy(memory):
    divided = arena.divide(memory, arena.REPLICATED, 1)
    head = write(memory, divided, 1, 3)
    arena.put(memory, divided, 1, head._replace(version=arena.VERSION + 1))
    assert arena.head(memory, divided, 1) is None


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        (b"GARB", "contains something else"),
        (arena.FIRST.pack(b"ORCA", 9, 0, 1, 2, 8192), "has layout 9; only layout 1 is supported"),
        (arena.FIRST.pack(b"ORCA", 1, 0, 7, 2, 8192), "has an impossible division"),
        (arena.FIRST.pack(b"ORCA", 1, 0, 1, 200, 8192), "has an impossible division"),
        (arena.FIRST.pack(b"ORCA", 1, 0, 1, 2, 8191), "has an impossible division"),
    ],
)
def test_an_unusable_first_page_gives_the_reason_and_a_save_replaces_it(memory, first, sentence):
    os.pwrite(memory, first, 0)
    with pytest.raises(arena.Unusable, match=sentence):
        arena.division(memory)
    assert arena.divide(memory, arena.REPLICATED, 1) == arena.division(memory)


def test_saves_alternate(memory):
    divided = arena.divide(memory, arena.REPLICATED, 1)
    taken = []
    for step in range(4):
        slot = arena.next_slot(memory, divided, (0, 1))
        write(memory, divided, slot, step)
        taken.append(slot)
    assert taken == [0, 1, 0, 1]


def test_the_copy_that_every_rank_has_is_not_overwritten(memory):
    divided = arena.divide(memory, arena.REPLICATED, 1)
    write(memory, divided, 0, 10)
    write(memory, divided, 1, 20)
    arena.keep(memory, 10)
    assert arena.next_slot(memory, divided, (0, 1)) == 1
    arena.keep(memory, 20)
    assert arena.next_slot(memory, divided, (0, 1)) == 0
    assert arena.next_slot(memory, divided, (0, 1), pinned=(0,)) is None


def test_a_copy_without_its_checksum_is_overwritten_first(memory):
    divided = arena.divide(memory, arena.REPLICATED, 1)
    write(memory, divided, 0, 10)
    write(memory, divided, 1, 20, sealed=0)
    assert [head.step for _, head in arena.copies(memory, divided, (0, 1))] == [10]
    assert arena.next_slot(memory, divided, (0, 1)) == 1


def test_of_one_step_saved_twice_the_later_generation_is_safe(memory):
    divided = arena.divide(memory, arena.REPLICATED, 1)
    write(memory, divided, 0, 10, generation=2)
    write(memory, divided, 1, 10, generation=1)
    arena.keep(memory, 10)
    assert arena.next_slot(memory, divided, (0, 1)) == 1


def give(fd, step, generation=1, seconds=60.0):
    arena.give(fd, arena.Head(arena.VERSION, 2, step, generation, 0, 2, arena.SHARDED, 1, 100, 7, 8), seconds)


def claim(fd, divided, generation=1):
    claimed = arena.claim(fd, divided, (0, 1), generation)
    return None if claimed is None else claimed[0]


@pytest.fixture
def divided(memory):
    """Step 10 is kept, step 20 is not yet."""
    divided = arena.divide(memory, arena.SHARDED, 1)
    write(memory, divided, 0, 10)
    write(memory, divided, 1, 20)
    arena.keep(memory, 10)
    return divided


def test_a_copy_that_a_partner_receives_is_not_overwritten_before_it_is_kept(memory, divided):
    give(memory, 20)
    assert claim(memory, divided) is None
    arena.keep(memory, 20)
    assert claim(memory, divided) == 0


def test_a_transfer_blocks_its_copy_until_its_step_is_kept_or_its_time_is_over(memory, divided):
    arena.keep(memory, 5)
    give(memory, 20)
    arena.keep(memory, 10)  # it comes late
    assert claim(memory, divided) is None
    give(memory, 20, seconds=-1.0)
    assert claim(memory, divided) == 1


def test_a_transfer_of_an_older_generation_or_an_earlier_boot_blocks_no_save(memory, divided):
    give(memory, 20, seconds=arena.LONGEST_GIVEN + 60.0)
    assert claim(memory, divided) == 1
    write(memory, divided, 1, 20)
    give(memory, 20)
    assert claim(memory, divided, generation=2) == 1


def test_a_kept_step_of_an_older_generation_does_not_end_a_later_transfer(memory, divided):
    arena.keep(memory, 90)  # the job went back to an older step
    give(memory, 20)
    write(memory, divided, 0, 15)
    assert claim(memory, divided) == 0
    write(memory, divided, 0, 25)
    assert claim(memory, divided) is None
    arena.keep(memory, 20)
    assert claim(memory, divided) == 0


def test_a_transfer_that_begins_during_a_save_keeps_its_copy(memory, divided, monkeypatch):
    begin = arena.begin

    def meanwhile(*where):
        sequence = begin(*where)
        give(memory, 20)
        return sequence

    monkeypatch.setattr(arena, "begin", meanwhile)
    assert claim(memory, divided) is None
    assert [head.step for _, head in arena.copies(memory, divided, (0, 1))] == [20, 10]
