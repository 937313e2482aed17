"""Watches the cluster's nodes for all jobs: reports each change once, and looks nodes up by name."""

from __future__ import annotations

from collections.abc import Callable

from outrider.master.core.events import NodeSeen
from outrider.master.core.k8s.pods import nodes
from outrider.master.core.k8s.values import shapes
from outrider.master.core.k8s.values.names import Document
from outrider.master.kubernetes.api.client import Api
from outrider.master.kubernetes.api.fence import fenced, name_of, readable
from outrider.master.kubernetes.api.watch import Watch

LOST_KEPT = 1000
"""Most deleted nodes that are remembered."""


class Nodes:
    """`changed` is called only for relevant changes: kubelets update their nodes every few minutes."""

    def __init__(self, changed: Callable[[NodeSeen], None]) -> None:
        self._changed = changed
        self._there: dict[str, NodeSeen] = {}
        self._lost: dict[str, NodeSeen] = {}
        """Nodes that were deleted last; the documents of their pods remain for about a minute."""

    async def watch(self, api: Api) -> None:
        await Watch(api, "/api/v1/nodes", self.listed, self.shown, nodes.trimmed).run()

    def listed(self, documents: list[Document]) -> None:
        there = {nodes.name_of(node) for node in readable("Node", documents, {})}
        for name in sorted(set(self._there) - there):
            self._lose(name)
        for node in documents:
            self.shown("MODIFIED", node)

    def shown(self, kind: str, document: Document) -> None:
        """Takes a change; a node whose document is malformed keeps its last state."""
        with fenced(name_of("Node", document)):
            shapes.check(document, shapes.NODE)
            self._show(kind, document)

    def _show(self, kind: str, document: Document) -> None:
        if kind == "DELETED":
            self._lose(nodes.name_of(document))
        else:
            self._see(nodes.seen(document))

    def of(self, name: str) -> NodeSeen | None:
        """The last state of a node; None if it has not been seen yet, as the watch of pods may be ahead."""
        return self._there.get(name) or self._lost.get(name)

    def _see(self, node: NodeSeen) -> None:
        self._lost.pop(node.node, None)
        before, self._there[node.node] = self._there.get(node.node), node
        if before != node:
            self._changed(node)

    def _lose(self, name: str) -> None:
        self._there.pop(name, None)
        gone = self._lost[name] = nodes.gone(name)
        while len(self._lost) > LOST_KEPT:
            del self._lost[next(iter(self._lost))]
        self._changed(gone)
