#!/usr/bin/env bash
# Times the training steps of the CPU program of llm.c, or of any program that prints `took X ms` for each step.
#   bench/peers/llm_c_step.sh DIR [STEPS]     DIR: a checkout of llm.c; STEPS: measured steps (default: 10)
#   bench/peers/llm_c_step.sh --self-test     time a fake program, to test this script
# It needs a checkout of llm.c with the weights and tokens that its README describes; it does not download them. If
# DIR/train_gpt2 is missing, it is built with the Makefile of DIR; PROGRAM names another program there, THREADS the number
# of threads (default: 2). 2 steps warm up before the measured ones, and the program is killed after the last. Tokens per
# second assume batches of 4 sequences of 64 tokens; set BATCH and SEQ for others.
# A step is fp32, without clipping and weight decay: less work than a step of `bench --step`.
set -euo pipefail
warm_up=2

fail() {
  echo "llm_c_step.sh: $*" >&2
  exit 1
}

build() { # DIR PROGRAM
  if [ -x "$1/$2" ]; then return; fi
  if ! make -C "$1" "$2" >&2; then fail "make $2 failed in $1"; fi
  [ -x "$1/$2" ] || fail "make did not build $2 in $1"
}

# Prints the milliseconds of the steps after the warm-up, one per line, and kills the program after the last.
step_times() { # DIR PROGRAM STEPS
  local line seen=0 program
  exec 3< <(cd "$1" && OMP_NUM_THREADS=${THREADS:-2} exec stdbuf -oL "./$2" 2>&1)
  program=$!
  while [ "$seen" -lt $((warm_up + $3)) ] && read -r line <&3; do
    if [[ $line =~ took\ +([0-9]+(\.[0-9]+)?)\ *ms ]]; then
      seen=$((seen + 1))
      if [ "$seen" -gt "$warm_up" ]; then echo "${BASH_REMATCH[1]}"; fi
    elif [ "$seen" -eq 0 ]; then
      echo "  $line" >&2 # a description of its model and data, or an error
    fi
  done
  kill "$program" 2>/dev/null || true
  exec 3<&-
}

# Prints a line in the columns of `bench --step` from milliseconds on standard input.
step_line() { # TOKENS
  LC_ALL=C sort -n | LC_ALL=C awk -v tokens="$1" '
    function at(part,    place, below) {
      place = 1 + part * (NR - 1); below = int(place)
      return below < NR ? ms[below] + (place - below) * (ms[below + 1] - ms[below]) : ms[NR]
    }
    { ms[NR] = $1 }
    END { printf "fp32  %9d tokens, %3d steps  %6.0f%10.0f%7.0f..%.0f\n",
                 tokens, NR, tokens / at(0.5) * 1e3, at(0.5), at(0.1), at(0.9) }'
}

time_program() { # DIR STEPS
  local program=${PROGRAM:-train_gpt2} times count
  [ -d "$1" ] || fail "there is no folder $1"
  [[ $2 =~ ^[1-9][0-9]*$ ]] || fail "STEPS is $2, must be a positive integer"
  build "$1" "$program"
  times=$(step_times "$1" "$program" "$2")
  count=$(wc -w <<<"$times")
  [ "$count" -eq "$2" ] ||
    fail "$program ended after $count of $2 measured steps ($warm_up warm-up steps before them)"
  echo "llm.c, whole steps            tokens/s   step ms  p10..p90 ms"
  step_line $((${BATCH:-4} * ${SEQ:-64})) <<<"$times"
}

# Tests with a program that make must build, that warms up slowly, prints other lines too, and never ends.
self_test() {
  local folder expected got
  folder=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$folder'" EXIT
  cat >"$folder/source" <<'TEXT'
#!/bin/sh
[ "$OMP_NUM_THREADS" = 2 ] || exit 1
echo 'val loss 5.3 (not a step: 17 ms)'
for step in 0 1; do echo "step $step: train loss 5.10 (took 99999.9 ms)"; done
echo 'generating: 12 ms'
while :; do
  for ms in 300.000000 100.5 200 400 500.0; do echo "step 3: train loss 4.01 (took $ms ms)"; done
done
TEXT
  printf 'train_gpt2: source\n\tcp source train_gpt2\n\tchmod +x train_gpt2\n' >"$folder/Makefile"
  expected='fp32        256 tokens,   5 steps     853       300    140..460'
  got=$(time_program "$folder" 5 2>/dev/null | tail -n 1)
  [ "$got" = "$expected" ] || fail "--self-test: expected \"$expected\", not \"$got\""
  printf '#!/bin/sh\necho "no weights"\n' >"$folder/train_gpt2"
  if (time_program "$folder" 5) >/dev/null 2>&1; then fail "--self-test: a program without steps passed"; fi
  echo "llm_c_step.sh: the self-test passed"
}

case "${1:-}" in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0" ;;
  --self-test) self_test ;;
  '' | -*) fail "the first argument must be a folder or --self-test; see --help" ;;
  *) time_program "$1" "${2:-10}" ;;
esac
