#!/bin/sh
# install.sh PYTHON FILE...: install what the files lock, with their digests.
#
# uv does in seconds what takes pip a minute. Where it cannot (an index that asks for a login, a
# folder of wheels instead of one), pip does it.
set -eu
python=$1
shift
for file; do set -- "$@" -r "$file"; shift; done
pip="$python -m pip --disable-pip-version-check"
told=$($pip config list)
index=$(printf '%s\n' "$told" | sed -n "s/^[^=]*\.index-url='\(.*\)'\$/\1/p" | tail -n 1)
if ! printf '%s\n' "$told" | grep -q 'no-index=' \
  && $pip --quiet install --no-compile --require-hashes --only-binary :all: -r requirements/uv.txt; then
  {
    "$python" -m uv pip install --python "$python" ${index:+--default-index "$index"} \
      --require-hashes "$@" 2>&1
    echo $? > .venv/status
  } | awk '!/^ [+~-] / { print; fflush() }' # not the list of all that it installed
  if [ "$(cat .venv/status)" = 0 ]; then exit; fi
fi
echo "uv cannot install here; pip can, in about a minute:"
# Shows each package while it is fetched, on a line that is written over, and what goes wrong.
{ $pip install --no-compile --require-hashes "$@" 2>&1; echo $? > .venv/status; } | awk '
  /^Collecting/ { printf "\r  %3d packages  %-50.50s", ++n, $2; fflush() }
  /^ERROR|^error/ { print "\n" $0 }
  END { if (n) print "" }'
exit "$(cat .venv/status)"
