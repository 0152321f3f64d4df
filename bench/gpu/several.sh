# shellcheck shell=bash
# The stages of bench/on_gpu --gpus N, sourced by it: several GPUs of one host, one rank on each, over NCCL. See stages.sh for
# what a stage is. A dry run plans the same runs for $GPUS GPUs and runs small ones on the CPU, over MPI.

# torchtitan, benchmarks/llama3_h100_202412_torchtitan.md: Llama-3.1-8B on 8 H100 with FSDP, 2 x 8192 tokens on each GPU,
# compiled, selective recomputation: tokens/s of a GPU.
readonly TORCHTITAN_RATE=6667

# 2 4 8, as far as there are GPUs.
rank_counts() {
  local count
  for count in 2 4 8; do
    [ "$count" -gt "$GPUS" ] || echo "$count"
  done
}

# Starts a program on so many ranks. A dry run of a program that looks for GPUs finds none.
on_ranks() { # RANKS PROGRAM ARGUMENT...
  command -v mpirun >/dev/null || skip_stage "there is no mpirun on the PATH"
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    mpirun --oversubscribe -np "$1" "${@:2}"
}

# Makes a token file from the headers of this repository, with 256 tokens.
make_tokens() { # FOLDER
  local prepare
  prepare=$(program prepare) || skip_stage "prepare was not built"
  find "$ROOT/runtime" -name '*.h' | LC_ALL=C sort |
    "$prepare" --out "$1/train.tok" --eval-out "$1/eval.tok" --eval-share 0.2 --files-from - >/dev/null
}

# Trains with these arguments into FOLDER/NAME and prints a line: the last loss, the hash of the weights. With $of_host, so
# many ranks in a row count as a host for NCCL, which connects hosts through sockets.
train_on() { # RANKS FOLDER NAME ARGUMENT of train...
  local ranks=$1 folder=$2 name=$3 train device=(--run.device=cuda --parallel.transport=nccl)
  train=$(program train) || skip_stage "train was not built"
  if [ -n "$DRY" ]; then device=(--run.device=cpu); fi
  # shellcheck disable=SC2016
  if on_ranks "$ranks" bash -c 'NCCL_HOSTID=$((OMPI_COMM_WORLD_RANK / $0)) exec "$@"' "${of_host:-$ranks}" "$train" "${@:4}" \
    "${device[@]}" --run.dir="$folder/$name" --overwrite --data.tokenizer= --data.vocab=256 --data.train="$folder/train.tok" \
    --data.eval="$folder/eval.tok" >"$folder/$name.txt" 2>&1; then
    echo "$name: $(grep -o 'loss *[0-9.]*' "$folder/$name.txt" | tail -n 1), $(grep '^weights ' "$folder/$name.txt")"
  else
    echo "$name: failed"
    tail -n 12 "$folder/$name.txt"
    return 1
  fi
}

# Fails unless all runs in a folder have the same weights.
same_weights() { # FOLDER
  local hashes
  hashes=$(sed -n 's/^weights //p' "$1"/*.txt)
  [ "$(sort -u <<<"$hashes" | wc -l)" -eq 1 ] || {
    echo "the weights differ"
    return 1
  }
  echo "one hash of $(wc -l <<<"$hashes") runs"
}

# Every verb of a communicator, on 2, 4 and 8 GPUs.
stage_nccl() {
  local matrix ranks
  matrix=$(program rank_matrix) || skip_stage "rank_matrix was not built"
  for ranks in $(rank_counts); do on_ranks "$ranks" "$matrix" --collectives; done
}

# One hash on 1, 2, 4 and 8 GPUs, with every strategy that one level has.
stage_bits() {
  local folder strategy ranks status=0 steps=10
  folder=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$folder'" EXIT
  if [ -n "$DRY" ]; then steps=2; fi
  make_tokens "$folder"
  for strategy in full_shard shard_grad_op no_shard; do
    for ranks in 1 $(rank_counts); do
      train_on "$ranks" "$folder" "$strategy-$ranks" "$ROOT/configs/tiny.toml" --model.vocab=256 --train.total_batch_size=16 \
        "--parallel.strategy=$strategy" "--train.steps=$steps" "--train.eval_every=$steps" || status=1
    done
  done
  same_weights "$folder" || status=1
  return $status
}

# How to train Llama-3-8B in full on sequences of 8192 tokens: sequences on a GPU and recomputation, torchtitan's first.
llama_variants() {
  printf '%s\n' '2 selective' '2 true' '1 true'
}

# Trains Llama-3-8B for some steps into FOLDER/NAME, in the first way that fits the memory, which later stages take, too. A dry
# run plans every way for GPUs that are not here, and trains a tiny model.
train_llama() { # FOLDER NAME STEPS ARGUMENT of train...
  local sequences recompute run=("--train.steps=$3" --train.eval_every=0 --checkpoint.save_every=0 --schedule.kind=constant "${@:4}")
  while read -r sequences recompute; do
    local batch=("--train.batch_size_per_device=$sequences" "--train.total_batch_size=$((sequences * GPUS))")
    local llama=("$ROOT/configs/llama3-8b.toml" --data.seq_len=8192 "--train.recompute=$recompute")
    echo "$sequences x 8192 tokens on a GPU, train.recompute = $recompute"
    if [ -n "$DRY" ]; then
      "$BUILD/bin/train" "${llama[@]}" "${batch[@]}" "${run[@]}" --run.device=cuda --parallel.transport=nccl --data.vocab=256 --plan \
        --ranks "$GPUS" --for h100-80gb >"$1/$2.plan"
      grep -E '^(levels|fits|too large|estimate)|^  all  +[0-9]+ B|between hosts' "$1/$2.plan"
    elif train_on "$GPUS" "$1" "$2" "${llama[@]}" "${batch[@]}" "${run[@]}"; then
      echo "$sequences $recompute" >"$OUT/llama-variant.txt"
      return
    elif ! grep -q 'out of memory' "$1/$2.txt"; then
      return 1
    fi
  done < <(cat "$OUT/llama-variant.txt" 2>/dev/null || llama_variants)
  [ -n "$DRY" ] || return 1
  train_on "$GPUS" "$1" "$2" "$ROOT/configs/tiny.toml" --model.vocab=256 --train.batch_size_per_device=2 \
    "--train.total_batch_size=$((2 * GPUS))" "${run[@]}"
}

# Tokens/s of a GPU, from the median of the last steps, beside those of torchtitan.
rate_of() { # FOLDER of a run
  sed -n 's/.*"step_seconds":\([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 4 | sort -g | sed -n 2p | awk \
    -v tokens="$(sed -n 's/.*"tokens":\([0-9]*\).*/\1/p' "$1/metrics.jsonl" | head -n 1)" -v gpus="$GPUS" -v dry="$DRY" \
    -v titan="$TORCHTITAN_RATE" '{
      rate = tokens / $1 / gpus
      printf "%.3f s a step, %.0f tokens/s of a GPU", $1, rate
      if (!dry) printf "; torchtitan publishes %d on 8 H100: ours / torchtitan %.2f", titan, rate / titan
      print ""
    }'
}

# Of the traced steps: the waits of each rank's compute stream, which is the exposed communication.
exposed_of() { # FOLDER of a run
  awk '
    function number(key,    at) { at = match($0, "\"" key "\": *[0-9.]+"); return at ? substr($0, RSTART + length(key) + 3, RLENGTH) + 0 : -1 }
    /"name": "thread_name"/ { row = number("pid") " " number("tid"); compute[row] = /"name": "compute"/ }
    /"ph":"X"/ {
      row = number("pid") " " number("tid")
      if (/"name":"wait"/ && compute[row]) waited[number("pid")] += number("dur")
      if (/"name":"step [0-9]*"/) { steps[number("pid")]++; whole[number("pid")] += number("dur") }
    }
    END { for (rank in steps) printf "rank %d: compute waits %.1f of %.1f ms of a traced step, %.1f %%\n", rank, \
            waited[rank] / steps[rank] / 1000, whole[rank] / steps[rank] / 1000, 100 * waited[rank] / whole[rank] }' "$1/trace.json" | sort
}

# Llama-3-8B in full beside torchtitan's published speed, and its exposed communication.
stage_llama() {
  local folder
  folder=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$folder'" EXIT
  make_tokens "$folder"
  train_llama "$folder" llama 8 --run.trace=2:4
  rate_of "$folder/llama"
  exposed_of "$folder/llama"
  cp "$folder/llama/metrics.jsonl" "$OUT/llama-metrics.jsonl"
}

# The same run with the GPUs as two hosts of half of them, in one level and in two: the same weights, other times.
stage_levels() {
  local folder levels half=$((GPUS / 2)) status=0
  [ "$GPUS" -ge 4 ] || skip_stage "two levels need two ranks on each of two hosts, 4 GPUs"
  folder=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$folder'" EXIT
  make_tokens "$folder"
  for levels in one two; do
    of_host=$half train_llama "$folder" "levels-$levels" 6 "--parallel.host_ranks=$half" "--parallel.levels=$levels" || status=1
    rate_of "$folder/levels-$levels"
  done
  same_weights "$folder" || status=1
  return $status
}

export TORCHTITAN_RATE
export -f rank_counts on_ranks make_tokens train_on same_weights llama_variants train_llama rate_of exposed_of stage_nccl stage_bits stage_llama \
  stage_levels
