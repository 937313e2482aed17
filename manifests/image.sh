#!/bin/sh
# manifests/image.sh REGISTRY/NAME:TAG builds the image, pushes it, and writes overlays/image: the base with that image, by its
# digest if the tool reports it. `make image IMAGE=REGISTRY/NAME:TAG` runs it.
#
#   TOOL=docker|podman|buildah    default: the first one that is installed
#   BASE=python@sha256:...        the base image, by its digest for reproducible builds
#   PUSH=no                       do not push the image
#   TO=oci:FOLDER:TAG             push it there instead (podman and buildah)
#   PULL_SECRET=NAME              the imagePullSecret of Outrider's pods and of injected pods, in each namespace
set -eu
image=${1:?REGISTRY/NAME:TAG of the image}
here=$(cd "$(dirname "$0")" && pwd)
name=${image%:*} tag=${image##*:}
case $image in *:*) ;; *) tag=latest ;; esac
case $tag in */*) name=$image tag=latest ;; esac # the colon belongs to a port

tool=${TOOL:-}
for each in docker podman buildah; do
  [ -n "$tool" ] || { command -v "$each" >/dev/null 2>&1 && tool=$each; }
done
[ -n "$tool" ] || { echo "docker, podman or buildah is required; none is installed" >&2; exit 1; }

"$tool" build ${BASE:+--build-arg "BASE=$BASE"} -f "$here/../Dockerfile.sidecar" -t "$name:$tag" "$here/.." >&2
digest=
if [ "${PUSH:-yes}" != no ]; then
  if [ "$tool" = docker ]; then
    docker push "$name:$tag" >&2
    digest=$(docker inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$name:$tag" | sed -n "s|^$name@||p" | head -n 1)
  else
    file=$(mktemp)
    "$tool" push --digestfile "$file" "$name:$tag" ${TO:+"$TO"} >&2
    digest=$(cat "$file") && rm -f "$file"
  fi
fi

by="newTag: \"$tag\""
[ -z "$digest" ] || by="digest: $digest"
mkdir -p "$here/overlays/image"
{
  cat <<X
# Written by manifests/image.sh: kubectl apply -k manifests/overlays/image
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - ../../base
images:
  - name: registry.invalid/outrider/sidecar
    newName: $name
    $by
X
  if [ -n "${PULL_SECRET:-}" ]; then
    cat <<X
patches:
  - target: {kind: Deployment, name: outrider-(master|webhook)}
    patch: |-
      - {op: add, path: /spec/template/spec/imagePullSecrets, value: [{name: $PULL_SECRET}]}
      - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: OUTRIDER_PULL_SECRET, value: $PULL_SECRET}}
X
  fi
  sed -n '/^replacements:/,$p' "$here/kustomization.yaml"
} >"$here/overlays/image/kustomization.yaml"
echo "kubectl apply -k manifests/overlays/image"
