# shellcheck shell=bash
# The stages of bench/on_gpu --suite first and what all stages use, sourced by it. A stage runs in its own shell and prints
# its results to standard output. If the machine cannot run it, it prints the reason and exits with $SKIPPED. Stages read:
#   ROOT, BUILD, DEPS   folders of the sources, the build and the headers     PYTHON   a Python, possibly with torch
#   OUT, COMMIT         output folder, measured commit                        LIMIT    time limit of the stage in seconds
#   DRY                 not empty: small shapes, without a GPU            GPUS     number of GPUs to use
export SKIPPED=77

skip_stage() {
  echo "$*"
  exit "$SKIPPED"
}

gpu_says() { # FIELD of nvidia-smi --query-gpu
  nvidia-smi --id=0 --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1
}

gpu_slug() { # "NVIDIA H200" -> "h200"
  if [ -n "$DRY" ]; then
    echo dry
  else
    gpu_says name | tr '[:upper:] ' '[:lower:]-' | sed 's/^nvidia-//; s/[^a-z0-9-]//g'
  fi
}

# The first line of the output of a command.
first_line() {
  "$@" 2>&1 | head -n 1 || true
}

stage_machine() {
  local field
  {
    echo "commit: $COMMIT"
    echo "date: $(date '+%F %T %Z')"
    if command -v nvidia-smi >/dev/null; then
      for field in name driver_version compute_cap memory.total clocks.max.sm clocks.max.mem clocks.sm power.limit \
        ecc.mode.current persistence_mode mig.mode.current temperature.gpu; do
        echo "GPU $field: $(gpu_says "$field")"
      done
    else
      echo "GPU: none"
    fi
    echo "processor: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) to use"
    echo "memory: $(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)"
    echo "kernel: $(uname -r)"
    echo "nvcc: $(nvcc --version 2>/dev/null | sed -n 's/.*release \(.*\)/\1/p' || true)"
    echo "cmake: $(first_line cmake --version)"
    echo "compiler: $(first_line c++ --version)"
    echo "MPI: $(first_line mpirun --version)"
    echo "Python: $(first_line "$PYTHON" --version)"
    echo "PyTorch: $(torch_version)"
  } | tee "$OUT/machine.txt"
}

torch_version() {
  "$PYTHON" -c 'import torch; print(torch.__version__, "cuDNN", torch.backends.cudnn.version())' 2>/dev/null || echo none
}

# Only the architecture of this GPU, for a fast build. 90a includes all of 90.
architecture() {
  local number
  number=$(gpu_says compute_cap | tr -d .)
  [ "$number" != 90 ] || number=90a
  echo "$number-real"
}

# CMake options for a CUDA toolkit without cuBLASLt, as installed by pip: uses the library of PyTorch, whose file name has
# a version, so that linkers need a link to it.
cublas_options() {
  local toolkit library links=$BUILD/cublas
  toolkit=$(dirname "$(dirname "$(realpath "$(command -v nvcc)")")")
  if compgen -G "$toolkit/include/cublasLt.h" >/dev/null || compgen -G "$toolkit/targets/*/include/cublasLt.h" >/dev/null; then
    return
  fi
  library=$("$PYTHON" -c 'import glob, site; print(*glob.glob(site.getsitepackages()[0] + "/nvidia/*/lib/libcublasLt.so.*"))' |
    cut -d' ' -f1)
  [ -n "$library" ] || return 0
  mkdir -p "$links"
  ln -sf "$library" "$links/libcublasLt.so"
  ln -sf "$library" "$links/${library##*/}"
  printf '%s\n' "-DCMAKE_LIBRARY_PATH=$links" "-DcublasLt_INCLUDE=$(dirname "$(dirname "$library")")/include"
}

# Configures a build in $BUILD with these options.
configure() { # OPTION...
  local options=() launcher
  if command -v ninja >/dev/null; then options+=(-G Ninja); fi
  if launcher=$(command -v ccache); then
    options+=("-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher" "-DCMAKE_CUDA_COMPILER_LAUNCHER=$launcher")
  fi
  mapfile -t -O "${#options[@]}" options < <(cublas_options)
  cmake -S "$ROOT" -B "$BUILD" "${options[@]}" -DCMAKE_BUILD_TYPE=Release -DFLATSHARD_CUDA=ON "-DFLATSHARD_DEPS=$DEPS" "$@"
}

stage_build() {
  [ -z "$DRY" ] || skip_stage "a dry run uses the programs in $BUILD"
  configure "-DFLATSHARD_CUDA_ARCHS=$(architecture)"
  cmake --build "$BUILD" --parallel "$(nproc)" --target bench train prepare
  cmake --build "$BUILD" --parallel "$(nproc)" --target flatshard_tests
}

# The path of a program of the build; fails if it does not exist.
program() {
  [ -x "$BUILD/bin/$1" ] || return 1
  echo "$BUILD/bin/$1"
}

# Times the selected cases on the GPU. A dry run checks that bench accepts these arguments and has such cases.
time_on_gpu() { # ARGUMENT of bench...
  local bench
  bench=$(program bench) || skip_stage "bench was not built"
  if [ -z "$DRY" ]; then
    "$bench" --device cuda "$@"
  else
    echo "bench --device cuda $*"
    "$bench" --device cuda --list "$@" | sed 's/^/  /'
  fi
}

# Times steps in bf16 on the GPU. A dry run plans them, which checks model, shape and config keys, and shows the memory.
step_on_gpu() { # ARGUMENT of bench --step...
  time_on_gpu --step bf16 "$@"
}

# In a dry run: runs bench with these arguments on the PTX machine, with small cases.
on_machine() { # ARGUMENT of bench...
  local bench
  [ -n "$DRY" ] || return 0
  bench=$(program ptx_vm_timed_bench) || skip_stage "the commands are right; this build has no ptx_vm_timed_bench to run them"
  "$bench" --device cuda --small "$@"
}

# In a dry run: runs a small step with these arguments on the PTX machine.
step_on_machine() { # ARGUMENT of bench --step...
  on_machine --step bf16 --model tiny --seq 16 --batch 2 --seconds 0.01 "$@"
}

stage_tests() {
  local tests
  if [ -n "$DRY" ]; then
    tests=$(program ptx_vm_tests) || skip_stage "this build has no ptx_vm_tests"
    "$tests" "host work of a CUDA stream"
  else
    tests=$(program flatshard_tests) || skip_stage "flatshard_tests was not built"
    "$tests" --test-suite=gpu --duration=true | tee "$OUT/tests.txt"
    ! grep -q '^0 passed' "$OUT/tests.txt" # without a usable GPU all tests are skipped
  fi
}

stage_sanitize() {
  local sanitizer bench tool codes=() code=0
  sanitizer=$(command -v compute-sanitizer) || skip_stage "there is no compute-sanitizer on the PATH"
  [ -z "$DRY" ] || skip_stage "compute-sanitizer needs a GPU; ptx_vm_tests detects the same errors without one"
  bench=$(program bench) || skip_stage "bench was not built"
  for tool in memcheck racecheck synccheck initcheck; do # in parallel: they mostly wait
    timeout "$((LIMIT - 5))" "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 5 "$bench" \
      --device cuda --small --seconds 0.01 >"$OUT/logs/$tool.txt" 2>&1 &
    codes+=("$!:$tool")
  done
  for tool in "${codes[@]}"; do
    local result=0
    wait "${tool%%:*}" || result=$?
    [ $result -eq 0 ] || code=1
    echo "${tool#*:}: exit code $result; $(grep -h 'SUMMARY' "$OUT/logs/${tool#*:}.txt" | tail -n 1 || echo 'no summary')"
  done
  return $code
}

stage_ops() {
  local bench
  if [ -n "$DRY" ]; then
    bench=$(program ptx_vm_timed_bench) || skip_stage "this build has no ptx_vm_timed_bench"
    "$bench" --device cuda --small --seconds 0.01 --json "$OUT/ops-bf16.json" rmsnorm bf16
    return
  fi
  bench=$(program bench) || skip_stage "bench was not built"
  "$bench" --device cuda --seconds 0.3 --json "$OUT/ops-bf16.json" bf16
  "$bench" --device cuda --seconds 0.2 --json "$OUT/ops-f32.json" f32
}

# Runs the same few steps on the CPU and on the GPU, with one rank and with several that share it, through host memory and
# over NCCL: losses must be equal on both, and bits for any number of ranks.
stage_ranks() {
  local train prepare folder ranks device=cuda steps=10 status=0 mpirun
  train=$(program train) || skip_stage "train was not built"
  prepare=$(program prepare) || skip_stage "prepare was not built"
  if [ -n "$DRY" ]; then device=cpu steps=2; fi
  folder=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$folder'" EXIT
  find "$ROOT/runtime" -name '*.h' | LC_ALL=C sort |
    "$prepare" --out "$folder/train.tok" --eval-out "$folder/eval.tok" --eval-share 0.2 --files-from - >/dev/null
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
  run() { # DEVICE RANKS [LAUNCHER...]
    local log=$folder/$1-$2${over:-}.txt name="$1, $2 rank(s)${over:+ over $over}"
    local options=("--run.device=$1" "--run.dir=$folder/$1-$2${over:-}" --overwrite)
    shift 2
    if "$@" "$train" "$ROOT/configs/tiny.toml" "${options[@]}" --model.vocab=256 --data.tokenizer= --data.train="$folder/train.tok" --data.eval="$folder/eval.tok" \
      --train.steps=$steps --train.eval_every=$steps >"$log" 2>&1; then
      echo "$name: $(sed -n 's/^step [0-9]*: //p' "$log" | tail -n 1), $(grep '^weights ' "$log"), $(grep -o '[0-9.kM]* tok/s' "$log" | tail -n 1)"
    else
      status=1
      echo "$name: failed"
      grep -a -m 4 -e '^train: ' -e 'NCCL WARN' "$log" || tail -n 4 "$log"
    fi
  }
  run cpu 1 env
  cp "$folder/cpu-1.txt" "$folder/reference"
  run $device 1 env
  if mpirun=$(command -v mpirun) && [ -z "$DRY" ]; then
    for ranks in 2 4; do run $device $ranks "$mpirun" --oversubscribe -np $ranks; done
    # NCCL lets ranks share a GPU if they claim to be on different hosts; its traffic then goes through sockets.
    for ranks in 2 4; do
      # shellcheck disable=SC2016
      over=nccl run $device $ranks "$mpirun" --oversubscribe -np $ranks \
        bash -c 'NCCL_HOSTID=$OMPI_COMM_WORLD_RANK exec "$0" "$@" --parallel.transport=nccl'
    done
  else
    echo "several ranks: not run$([ -n "$DRY" ] || echo ', there is no mpirun')"
  fi
  [ $status -eq 0 ] || return 1
  [ "$(sed -n 's/^weights //p' "$folder/$device"-*.txt | sort -u | wc -l)" -eq 1 ] || {
    echo "the weights differ between numbers of ranks"
    status=1
  }
  # The order of sums differs, and values have 8 significant bits: losses must agree within 1%.
  sed -n 's/.*eval loss //p' "$folder/reference" "$folder/$device-1.txt" | awk '
    { loss[NR] = $1 }
    END { exit !(NR == 2 && loss[1] > 0 && (loss[2] / loss[1] - 1) ^ 2 < 1e-4) }' || {
    echo "the loss differs from that on the CPU"
    status=1
  }
  return $status
}

# Steps of 16384 tokens, or fewer for the largest model, to fit 141 GB. A model that exceeds the memory is reported, and the
# next one runs.
stage_steps() {
  local bench model length batch options status=0 said
  bench=$(program bench) || skip_stage "bench was not built"
  mkdir -p "$OUT/steps"
  if [ -n "$DRY" ]; then
    "$bench" --step bf16 --device cpu --small --seconds 0.1 --model tiny --seq 16 --batch 2 --json "$OUT/steps/tiny-16.json"
    return
  fi
  while read -r model length batch options; do
    echo "$model, $batch x $length tokens $options"
    # shellcheck disable=SC2086
    said=$("$bench" --step bf16 --device cuda --seconds 2 --model "$model" --seq "$length" --batch "$batch" $options \
      --json "$OUT/steps/$model-$length.json" 2>&1) || [[ $said == *"out of memory"* ]] || status=1
    grep -A1 -e 'whole steps' -e '^bench:' <<<"$said" || echo "$said"
  done <<'LIST'
qwen2.5-0.5b 1024 16
qwen2.5-1.5b 1024 16
qwen2.5-0.5b 4096 4
qwen2.5-1.5b 4096 4
qwen2.5-0.5b 8192 2
qwen2.5-1.5b 8192 2
llama3-8b-16-layers 4096 2 --train.recompute=true
llama3-8b-16-layers 8192 1 --train.recompute=true
llama3-8b 4096 1 --train.recompute=true
LIST
  return $status
}

# Times PyTorch beside bench, with these arguments of peers/on_gpu.py.
peers() { # ARGUMENT...
  local bench device=cuda
  "$PYTHON" -c 'import torch' 2>/dev/null || skip_stage "$PYTHON has no torch; set PYTHON to one with torch"
  bench=$(program bench) || skip_stage "bench was not built"
  if [ -n "$DRY" ]; then device=cpu; fi
  "$PYTHON" "$ROOT/bench/peers/on_gpu.py" --device $device --bench "$bench" --seconds "$((LIMIT - 5))" "$@"
}

stage_peers() {
  peers --json "$OUT/peers.json"
}

export -f skip_stage gpu_says first_line torch_version architecture cublas_options program configure time_on_gpu step_on_gpu \
  on_machine step_on_machine peers stage_machine stage_build stage_tests stage_sanitize stage_ops stage_ranks stage_steps stage_peers
