"""The corpus is large, the same each time, and made of documents that the API server could store."""

from __future__ import annotations

from tests.integration.kubernetes.hostile_documents import as_json, corpus


def test_the_corpus_is_the_same_each_time_and_each_document_has_a_name_of_its_own() -> None:
    found = corpus()
    assert len(found) >= 300
    assert as_json(corpus()) == as_json(found)
    assert as_json(corpus(seed=18)) != as_json(found)
    assert len({document["metadata"]["name"] for _title, document in found}) == len(found)
