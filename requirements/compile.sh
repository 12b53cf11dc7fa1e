#!/usr/bin/env bash
# Make the lock files of this folder anew from pyproject.toml and the *.in files:
#
#   requirements/compile.sh             take over what pyproject.toml asks for, keep all other versions
#   requirements/compile.sh --upgrade   newest versions of everything
#
# The files hold the hashes for every platform and Python >= 3.11, and no address: whoever installs decides where from.
set -euo pipefail
cd "$(dirname "$0")/.."
for name in ${!UV_@}; do unset "$name"; done
[ ! -s /etc/ssl/certs/ca-certificates.crt ] || export UV_SYSTEM_CERTS=1

compile() { # OUTPUT ARGUMENTS...
  local output=requirements/$1.txt
  shift
  .venv/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-header \
    "${upgrade[@]}" "$@" --output-file "$output" >/dev/null
  echo "$output: $(grep -c '==' "$output") packages"
}

upgrade=("$@")
# Each file is a constraint on the next, so that going from one to the other replaces nothing.
compile build requirements/build.in
compile node pyproject.toml -c requirements/build.txt
compile controller pyproject.toml --extra controller -c requirements/build.txt -c requirements/node.txt
compile dev pyproject.toml --extra controller --extra dev -c requirements/build.txt -c requirements/controller.txt
compile docs pyproject.toml --extra controller --extra docs -c requirements/build.txt -c requirements/dev.txt
compile java requirements/java.in -c requirements/dev.txt
