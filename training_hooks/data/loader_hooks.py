"""Wraps torch's loaders and samplers, once in a process, and reports their passes to a `Book`.

A book has `begin(loader)`, which returns the pass that the loader begins (None: the loader is not changed), and
`samplers`. torch's behaviour is unchanged until a pass must differ: a position was loaded, or the batches are cut
again. If a book fails, the loader behaves as in torch.
"""

import functools
import itertools
import operator
import weakref

from .consumed import order_of

_wrappers = itertools.count()


def wrap_samplers(current, module):
    """`module` is torch.utils.data.distributed; `current()` returns this process's book, or None."""
    kind = module.DistributedSampler
    make, draw, length, set_epoch = kind.__init__, kind.__iter__, kind.__len__, kind.set_epoch

    @functools.wraps(make)
    def __init__(self, *args, **kwargs):
        make(self, *args, **kwargs)
        book = current()
        if book is not None:
            book.samplers.made(self)

    @functools.wraps(draw)
    def __iter__(self):
        book = current()
        one = book.samplers.fresh.pop(self, None) if book is not None else None
        if one is None or not one.cut:
            return draw(self)
        return iter(one.indices(order_of(self, draw)))

    @functools.wraps(length)
    def __len__(self):
        book = current()
        own = book.length(self) if book is not None else None
        return length(self) if own is None else own

    @functools.wraps(set_epoch)
    def wrapped_set_epoch(self, epoch):
        set_epoch(self, epoch)
        book = current()
        if book is not None:
            book.samplers.named.add(self)

    kind.__init__, kind.__iter__, kind.__len__, kind.set_epoch = __init__, __iter__, __len__, wrapped_set_epoch


def wrap_loaders(current, module):
    """`module` is torch.utils.data.dataloader."""
    loader, iterator = module.DataLoader, getattr(module, "_BaseDataLoaderIter", None)
    if iterator is None:
        return
    make, begin = loader.__init__, loader.__iter__
    mark = "_outrider_pass_%s_%d" % (__name__.partition(".")[0], next(_wrappers))  # other code may wrap it too

    @functools.wraps(make)
    def __init__(self, *args, **kwargs):
        make(self, *args, **kwargs)
        book = current()
        if book is not None:
            book.loader_made(self)

    @functools.wraps(begin)
    def __iter__(self):
        book = current()
        one = book.begin(self) if book is not None else None
        iterating = begin(self)
        if one is not None:
            one.iterator = weakref.ref(iterating)
        if getattr(iterating, mark, None) is not one:
            setattr(iterating, mark, one)
        return iterating

    loader.__init__, loader.__iter__ = __init__, __iter__
    setattr(iterator, mark, None)
    iterator.__next__ = _counted(iterator.__next__, mark)


def _counted(deliver, mark):
    pass_of = operator.attrgetter(mark)

    @functools.wraps(deliver)
    def __next__(self):
        one = pass_of(self)
        if one is None:
            return deliver(self)
        made = one.made(one, True)
        if made != one.seen:
            one.seen, one.taken = made, one.delivered
            if one.first_step is not None:
                one.first_step()
        try:
            batch = deliver(self)
        except StopIteration:
            one.over = True
            raise
        one.delivered += 1
        return batch

    return __next__
