# shellcheck shell=bash
# The stages of bench/on_gpu --suite speed, sourced by it: attention, steps and products before and after a change and
# beside other systems, on one GPU, with programs that were built elsewhere (package.sh). See stages.sh for what a stage is.

# The shapes of attention in Qwen2.5 with 0.5 and 1.5 billion parameters and in Llama-3-8B, and one long document.
export ATTENTION_SHAPES='16*1024 x 14/2 x 64|4*4096 x 14/2 x 64|2*8192 x 14/2 x 64'\
'|16*1024 x 12/2 x 128|4*4096 x 12/2 x 128|2*8192 x 12/2 x 128|2*4096 x 32/8 x 128|16384 x 16/16 x 128 causal'

# Every kernel of the backward pass on these shapes, interleaved in one process; and whether 1,000 runs have one result.
stage_attention() {
  time_on_gpu --seconds 0.1 --rounds 3 --json "$OUT/attention.json" attention bf16 "$ATTENTION_SHAPES"
  time_on_gpu --repeat 1000 attention_backward bf16 '4*4096 x 14/2 x 64'
  on_machine --repeat 3 attention_backward bf16 '70+58'
}

# cuDNN and FlashAttention at these shapes, also in PyTorch's deterministic mode.
stage_rivals() {
  peers --ops "attention_\w+ (${ATTENTION_SHAPES//'*'/'\*'}).* bf16" --json "$OUT/rivals.json"
}

# Every op of the steps of five settings, by its shape.
stage_traces() {
  local model length batch keys
  mkdir -p "$OUT/steps"
  while read -r model length batch keys; do
    # shellcheck disable=SC2086
    step_on_gpu --ops --seconds 1.5 --model "$model" --seq "$length" --batch "$batch" $keys --json "$OUT/steps/$model-$length.json"
  done <<'LIST'
qwen2.5-0.5b 1024 16
qwen2.5-0.5b 4096 4
qwen2.5-1.5b 1024 16
qwen2.5-1.5b 4096 4
llama3-8b-16-layers 4096 2 --train.recompute=true
LIST
  step_on_machine --ops --micro-steps 2
}

# CUDA graphs, attention's backward pass in one pass, LLM.Q's protocol of one update in 524,288 tokens, timed algorithms of
# products, selective recomputation.
stage_variants() {
  local small=(--model qwen2.5-0.5b --seq 1024) large=(--model qwen2.5-1.5b --seq 4096 --batch 4) graphs
  mkdir -p "$OUT/steps"
  for graphs in true false; do
    step_on_gpu --seconds 1.5 "${small[@]}" --batch 16 "--run.cuda_graphs=$graphs" --json "$OUT/steps/graphs-$graphs.json"
  done
  step_on_gpu --seconds 1.5 "${large[@]}" --run.attention=one_pass --json "$OUT/steps/one-pass.json"
  step_on_gpu --seconds 3 "${small[@]}" --batch 32 --micro-steps 16 --peer --json "$OUT/steps/llmq-protocol.json"
  step_on_gpu --seconds 2 "${large[@]}" "--run.tuned_products=$OUT/tuned.txt" --json "$OUT/steps/tuned.json"
  step_on_gpu --seconds 2 --model llama3-8b-16-layers --seq 4096 --batch 2 --train.recompute=selective --json "$OUT/steps/selective.json"
  step_on_machine --micro-steps 2 --run.cuda_graphs=true
}

# The products of every linear layer of three models in the three passes, by the first and by the best of cuBLASLt's
# algorithms; the head of GPT-2 with 50,257 and 50,264 columns; FP8 operands with a scale each, and by blocks.
stage_products() {
  local layers='16384 x|8192 x|x 16384|x 8192' status=0
  time_on_gpu --detail --seconds 0.15 --tuned --json "$OUT/products.json" 'gemm ' bf16 "$layers"
  time_on_gpu --detail --seconds 0.2 --json "$OUT/head-products.json" 'gemm ' bf16 aligned '50257|50264'
  time_on_gpu --detail --seconds 0.1 --json "$OUT/fp8.json" fp8_product bf16 || status=1
  time_on_gpu --detail --seconds 0.1 --json "$OUT/fp8-blocks.json" fp8_block_product bf16 || status=1
  [ $status -eq 0 ] || return 1
  on_machine --detail --tuned --seconds 0.01 'fp8_product|fp8_block_product'
}

stage_losses() {
  time_on_gpu --detail --seconds 0.3 --json "$OUT/losses.json" 'cross_entropy|head_loss' bf16
}

# Adapters on Llama-3-8B, whose weights are bf16 or NF4.
stage_adapters() {
  local base
  mkdir -p "$OUT/steps"
  for base in none nf4; do
    step_on_gpu --seconds 3 --ops --model llama3-8b --seq 2048 --batch 4 --lora.rank=16 "--quant.base=$base" \
      --train.recompute=selective --json "$OUT/steps/lora-$base.json"
  done
  step_on_machine --lora.rank=4 --quant.base=nf4
}

stage_races() {
  local sanitizer bench
  bench=$(program bench) || skip_stage "bench was not built"
  time_on_gpu --small --list attention bf16
  sanitizer=$(command -v compute-sanitizer) || skip_stage "there is no compute-sanitizer on the PATH"
  [ -z "$DRY" ] || skip_stage "compute-sanitizer needs a GPU; ptx_vm_tests detects races without one"
  "$sanitizer" --tool racecheck --error-exitcode 9 --print-limit 5 "$bench" --device cuda --small --seconds 0.01 attention bf16
}

# What a multiprocessor waits for in the backward pass of attention, and whether all are busy to the end, from the counters
# of the hardware: no kernel of ours records clocks.
stage_counters() {
  local profiler bench
  bench=$(program bench) || skip_stage "bench was not built"
  time_on_gpu --list attention_backward bf16 '4*4096 x 14/2 x 64|4*4096 x 12/2 x 128'
  profiler=$(command -v ncu) || skip_stage "there is no ncu on the PATH"
  [ -z "$DRY" ] || skip_stage "ncu needs a GPU"
  "$profiler" --clock-control none --kernel-name-base function --kernel-name regex:backward --launch-count 8 \
    --section SpeedOfLight --section WarpStateStats --section SchedulerStats \
    --metrics sm__cycles_active.min,sm__cycles_active.avg,sm__cycles_active.max \
    "$bench" --device cuda --repeat 2 attention_backward bf16 '4*4096 x 14/2 x 64|4*4096 x 12/2 x 128'
}

export -f stage_attention stage_rivals stage_traces stage_variants stage_products stage_losses stage_adapters stage_races \
  stage_counters
