"""Every message there can be, drawn from the annotations: a new field is tested from the day it is added."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from outrider.wire.ids import Generation
from outrider.wire.messages.directions import FromMaster, FromSidecar, Message

_numbers = st.integers(min_value=-(2**63), max_value=2**63 - 1)
_counts = st.integers(min_value=0, max_value=2**63 - 1)

st.register_type_strategy(int, _numbers)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(str, st.text(st.characters(exclude_categories=()), max_size=40))
st.register_type_strategy(Generation, st.builds(Generation, _counts, _counts))


def messages_of(union: object) -> st.SearchStrategy[Message]:
    return st.one_of(*(st.from_type(cls) for cls in get_args(union)))


from_sidecar = messages_of(FromSidecar)
from_master = messages_of(FromMaster)
