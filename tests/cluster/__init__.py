"""On a real Kubernetes that KUBECONFIG names, whose nodes have the images outrider/sidecar:dev, outrider/digits:dev
and, for test_ps.py, outrider/tf:dev (examples/ps).

Its nodes must share the folder FOLDERS: the ranks write there what they did, and the tests read it. One cluster a run,
a namespace a test or story, and two of them at a time. docs/testing.md says how to have one.
"""
