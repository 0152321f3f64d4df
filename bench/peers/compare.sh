#!/usr/bin/env bash
# Times training steps of Flatshard and PyTorch, interleaved, and prints the ratio for each dtype.
#   bench/peers/compare.sh [--rounds N] [--seconds S] [--threads N] [--json FILE]
# A round runs `build/bin/bench --step` and pytorch_step.py, in alternating order, so that drift of the machine affects both
# equally. PYTHON is a Python with torch (default: python3), BENCH the bench program (default: build/bin/bench).
# --seconds limits the steps of one dtype.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
bench=${BENCH:-$here/../../build/bin/bench}
rounds=4 seconds=10 threads=2 json=
usage() {
  sed -n '2,6s/^# \{0,1\}//p' "$0"
}
fail() {
  echo "compare.sh: $*" >&2
  exit 1
}
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit ;;
    --rounds | --seconds | --threads | --json) [ $# -gt 1 ] || fail "$1 needs a value" ;;
    *) fail "$1 is unknown; see --help" ;;
  esac
  case "$1" in
    --json) json=$2 ;;
    *) [[ $2 =~ ^[1-9][0-9]*$ ]] || fail "$1 is $2, must be a positive integer" ;;&
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --threads) threads=$2 ;;
  esac
  shift 2
done
[ -x "$bench" ] || fail "there is no $bench; build it, or set BENCH"
"$python" -c 'import torch' 2>/dev/null || fail "$python has no torch; set PYTHON to one with torch"
if [ -n "$json" ]; then # fail before the run
  [ -w "$(dirname "$json")" ] || fail "--json: cannot write $json"
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=$threads
ours() {
  "$bench" --step --threads "$threads" --seconds "$seconds" | tee "$folder/ours.$1"
}
torch() {
  "$python" "$here/pytorch_step.py" --threads "$threads" --seconds "$seconds" | tee "$folder/torch.$1"
}
for ((round = 1; round <= rounds; ++round)); do
  echo "round $round of $rounds"
  if ((round % 2)); then
    ours "$round"
    torch "$round"
  else
    torch "$round"
    ours "$round"
  fi
  echo
done
"$python" "$here/paired.py" "$folder" ${json:+--json "$json"}
