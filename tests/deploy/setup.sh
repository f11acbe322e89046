#!/bin/bash
# Make the runtimes of `make test-deploy` under .deploy (or $GELU_FAST_DEPLOY_CACHE): onnxruntime 1.17.3 and 1.20.1 in
# environments of their own, onnxruntime-node, onnxruntime-web and playwright-core, node and Debian's chromium. What is
# there already stays. Says what is missing, and exits 2, where it can't install.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${GELU_FAST_DEPLOY_CACHE:-$here/../../.deploy}
mkdir -p "$cache"

# onnxruntime 1.17.3 has wheels for CPython 3.8 to 3.12, 1.20.1 for 3.10 to 3.13.
find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.12 python3.11 python3.10; do
    if command -v "$candidate" >/dev/null &&
      "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null
    then echo "$candidate"; return; fi
  done
  echo "needs: CPython 3.10, 3.11 or 3.12 with venv on the PATH (or as PYTHON=), for onnxruntime 1.17.3" >&2
  exit 2
}

environment() { # version, further requirements
  local folder=$cache/ort-$1
  if "$folder/bin/python" -c "import onnxruntime, sys; sys.exit(onnxruntime.__version__ != '$1')" 2>/dev/null; then return; fi
  local python
  python=$(find_python)
  rm -rf "$folder"
  "$python" -m venv "$folder"
  "$folder/bin/pip" install -q --disable-pip-version-check "onnxruntime==$1" "${@:2}"
}

programs() { # Debian packages whose programs are missing
  local wanted=()
  command -v node >/dev/null || wanted+=(nodejs)
  command -v npm >/dev/null || wanted+=(npm)
  command -v chromium >/dev/null || wanted+=(chromium)
  if [ ${#wanted[@]} -eq 0 ]; then return; fi
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "needs: ${wanted[*]} on the PATH (apt-get install ${wanted[*]}, as root)" >&2
    exit 2
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
}

packages() {
  local folder=$cache/node
  if cmp -s "$here/package.json" "$folder/package.json" && [ -e "$folder/.done" ]; then return; fi
  rm -rf "$folder"
  mkdir -p "$folder"
  cp "$here/package.json" "$folder/"
  # No scripts: onnxruntime-node's would download CUDA's libraries; the CPU library is in the package itself.
  npm install --prefix "$folder" --ignore-scripts --no-package-lock --no-audit --no-fund --loglevel=error
  touch "$folder/.done"
}

environment 1.17.3 'numpy<2'
environment 1.20.1
programs
packages
echo "runtimes are in $cache"
