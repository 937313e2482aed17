"""On a real Kubernetes that KUBECONFIG names, whose nodes have the images outrider/sidecar:dev and outrider/digits:dev.

Its nodes must share the folder FOLDERS: the ranks write there what they did, and the tests read it. One cluster a run,
a namespace a test.
"""
