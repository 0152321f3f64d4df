#include "train/config/config.h"

#include "train/config/model_fields.h"
#include "train/config/saving_fields.h"

namespace flatshard {
namespace {

// "update rule and its state; adamw: AdamW with fp32 moments; ..."
std::string optimizer_help() {
  std::string text = "update rule and its state";
  for (const OptimizerKind& kind : optimizer_kinds()) text += str("; ", kind.name, ": ", kind.about);
  return text + "; paged: the state lives in host memory and visits the device for the update";
}

// Bounded because a plan stores an entry per sequence of a step, and a batch indexes tokens with 32 bits.
constexpr double kMostSequences = 1 << 18, kMostTokens = INT32_MAX, kMostThreads = 1024, kMostSamples = 1e15;

}  // namespace

std::vector<Field> fields(Config& c) {
  RunConfig& run = c.run;
  LoraConfig& lora = c.lora;
  QuantConfig& quant = c.quant;
  DataConfig& data = c.data;
  TrainConfig& train = c.train;
  OptimizerConfig& optimizer = c.optimizer;
  ScheduleConfig& schedule = c.schedule;
  PrecisionConfig& precision = c.precision;
  ParallelConfig& parallel = c.parallel;
  std::vector<Field> all{
      {"run.dir", &run.dir, "run folder: metrics, resolved config, report, checkpoints"},
      {"run.seed", &run.seed, "seed of all random numbers", {}, 0},
      {"run.device",
       &run.device,
       "compute device; auto takes a GPU if there is one",
       {"auto", "cpu", "cuda"}},
      {"run.cuda_graphs", &run.cuda_graphs, "replay each micro-step as a CUDA graph; one rank on a GPU"},
      {"run.tuned_products", &run.tuned_products,
       "file of matrix-product algorithms timed on this kind of GPU, to which a run adds the shapes it "
       "lacks; "
       "results depend on it; empty = cuBLASLt's choice"},
      {.key = "run.trace",
       .slot = &run.trace,
       .help = "write trace.json, a timeline of all ranks for Perfetto, and overlap.svg, a picture of one "
               "step: true for the first 10 steps, \"100:110\" for steps 100 to 110; at most 10 MB",
       .or_flag = true},
      {"run.threads",
       &run.threads,
       "compute threads per rank; 0 = this rank's share of the processors",
       {},
       0,
       kMostThreads},
      {"run.hash_every", &run.hash_every, "steps between printed weight hashes; 0 = only at the end", {}, 0},
      {"run.resume", &run.resume,
       "checkpoint to resume from: \"latest\" in run.dir, \"auto\", or a path; same as --resume; empty = "
       "start "
       "fresh"},
  };
  const std::vector<Field> others{
      {"lora.rank",
       &lora.rank,
       "rank of the adapters; 0 = none, the model itself is trained",
       {},
       0,
       kMostLoraRank},
      {"lora.alpha",
       &lora.alpha,
       "scale of an adapter's update, divided by its rank",
       {},
       kLeastFloat,
       kMostFloat},
      {"lora.dropout",
       &lora.dropout,
       "probability of dropping an element of an adapter's input",
       {},
       0,
       0.99},
      {"lora.targets", &lora.targets,
       "layers with an adapter: \"all-linear\", a list of paths or their ends, or a regular expression for "
       "whole paths"},
      {"lora.exclude", &lora.exclude, "layers without one, as a list or a regular expression"},
      {"lora.layers", &lora.layers, "indices of the blocks with adapters; empty = all", {}, 0},
      {"lora.rank_pattern",
       &lora.rank_pattern,
       "ranks of single layers, by regular expressions for the end of a path",
       {},
       1,
       kMostLoraRank},
      {"lora.alpha_pattern",
       &lora.alpha_pattern,
       "alphas of single layers, by regular expressions for the end of a path",
       {},
       kLeastFloat,
       kMostFloat},
      {"lora.rslora", &lora.rslora, "divide alpha by the square root of the rank"},
      {"lora.init",
       &lora.init,
       "initial values of the A factors, with B zero; adapter: both from model.adapter",
       {"kaiming", "gaussian", "adapter"}},
      {"lora.bias", &lora.bias, "biases to train", {"none"}},
      {"lora.save_modules", &lora.save_modules,
       "modules to train in full and to save with the adapters, by paths or their ends"},

      {"quant.base",
       &quant.base,
       "4-bit format of the blocks' frozen linear layers under adapters",
       {"none", "nf4", "fp4"}},
      {"quant.block",
       &quant.block,
       "elements that share a scale: a power of two",
       {},
       kSmallestFourBitBlock,
       kLargestFourBitBlock},
      {"quant.double", &quant.nested, "quantize the scales too, to 8 bits"},
      {"quant.compute",
       &quant.compute,
       "dtype that 4-bit weights are multiplied in; auto = precision.compute",
       {"auto", "bf16", "fp16", "fp32"}},
      {"quant.skip", &quant.skip,
       "linear layers that are not quantized, by their names or those of modules around them"},
      {"quant.upcast_norms", &quant.fp32_norms, "keep the frozen parameters of norms in fp32"},

      {"data.train", &data.train,
       "file to train on: tokens made by prepare, or text or JSON (.txt, .jsonl, .json, also .gz or .zst), "
       "whose tokens are made once and kept beside it, in FILE.HASH.tok"},
      {"data.eval", &data.eval, "file to evaluate on, of the same kinds; empty = no evaluation"},
      {"data.max_samples",
       &data.max_samples,
       "use only the first so many samples of data.train, and of data.eval; 0 = all",
       {},
       0,
       kMostSamples},
      {"data.tokenizer", &data.tokenizer,
       "folder of the tokenizer, for text and JSON lines, and for the model that is saved; empty = that of "
       "model.init_from, or, without one, bytes"},
      {"data.chat_template", &data.chat_template,
       "chat template of conversations: a built-in name or a file; empty = that of the tokenizer's folder"},
      {"data.text_field", &data.text_field, "field of JSON lines that holds the document"},
      {"data.train_on",
       &data.train_on,
       "trained part of conversations: the assistant's turns, the last of them, or all tokens",
       {"assistant", "last", "all"}},
      {"data.seq_len", &data.seq_len, "tokens per sequence", {}, 0, kMostTokens},
      {"data.vocab",
       &data.vocab,
       "vocabulary size that token files must have; 0 = from three quarters of model.vocab up to all of it",
       {},
       0,
       INT32_MAX},
      {"data.packing",
       &data.packing,
       "how documents become sequences: windows of the file in which documents attend to each other "
       "(wrapped) "
       "or do not (documents), whole documents packed tightly, longer ones truncated (best_fit) or split "
       "(best_fit_split), or one document per sequence (none)",
       {"wrapped", "documents", "best_fit", "best_fit_split", "none"}},
      {"data.truncation",
       &data.truncation,
       "which tokens of a document longer than data.seq_len best_fit and none use",
       {"keep_start", "keep_end"}},
      {"data.padding",
       &data.padding,
       "where best_fit and none pad sequences that documents do not fill",
       {"right", "left"}},
      {"data.shuffle", &data.shuffle, "shuffle the sequences in every epoch"},

      {"train.steps", &train.steps, "optimizer steps; give this or train.epochs", {}, 0, kMostSteps},
      {"train.epochs", &train.epochs, "passes over the data; give this or train.steps", {}, 0},
      {"train.total_batch_size",
       &train.total_batch_size,
       "sequences per optimizer step, over all ranks",
       {},
       0,
       kMostSequences},
      {"train.batch_size_per_device",
       &train.batch_size_per_device,
       "sequences per micro-batch of one rank",
       {},
       1,
       kMostSequences},
      {"train.lane_size",
       &train.lane_size,
       "sequences per lane, the unit of summation: results depend on it, but not on how lanes are dealt to "
       "ranks; larger than batch_size_per_device: summed in place over micro-steps, with one buffer. 0 = "
       "batch_size_per_device; on one rank total_batch_size",
       {},
       0,
       kMostSequences},
      {"train.eval_batch_size_per_device",
       &train.eval_batch_size_per_device,
       "sequences per evaluation batch of one rank; 0 = batch_size_per_device",
       {},
       0,
       kMostSequences},
      {"train.head_chunk",
       &train.head_chunk,
       "tokens whose logits exist at once: the output head and the loss are computed chunk by chunk; a "
       "smaller "
       "chunk takes less memory and more time, and rounds differently",
       {},
       1,
       kMostTokens},
      {"train.recompute", &train.recompute,
       "activation checkpointing: keep only the inputs of each block and recompute the rest in the backward "
       "pass"},
      {"train.eval_every",
       &train.eval_every,
       "steps between evaluations; below 1: a fraction of the run; 0 = never",
       {},
       0,
       kMostSteps},
      {"train.eval_each_epoch", &train.eval_each_epoch, "evaluate at the end of every epoch too"},
      {"train.skip_nonfinite", &train.skip_nonfinite,
       "skip a step with a NaN or infinite gradient instead of stopping"},

      {"optimizer.kind", &optimizer.kind, optimizer_help(), optimizer_names()},
      {"optimizer.lr", &optimizer.lr, "peak learning rate", {}, 0, kMostFloat},
      {"optimizer.betas",
       &optimizer.betas,
       "decay rates of the moments; the default is that of optimizer.kind",
       {},
       0,
       1},
      {"optimizer.eps", &optimizer.eps, "epsilon of AdamW", {}, kLeastFloat, kMostFloat},
      {"optimizer.weight_decay", &optimizer.weight_decay, "decoupled weight decay", {}, 0, kMostFloat},
      {"optimizer.grad_clip",
       &optimizer.grad_clip,
       "maximum global gradient norm; 0 = no clipping",
       {},
       0,
       kMostFloat},
      {"optimizer.lr_scaling",
       &optimizer.lr_scaling,
       "scale lr by k or sqrt(k), where k = total batch size / base_batch_size",
       {"none", "linear", "sqrt"}},
      {"optimizer.base_batch_size",
       &optimizer.base_batch_size,
       "batch size that optimizer.lr was tuned for",
       {},
       0},
      {"optimizer.no_decay", &optimizer.no_decay,
       "parameters without weight decay: kinds (norm, bias, embed) and name patterns"},

      {"schedule.kind", &schedule.kind, "learning-rate schedule", {"linear", "constant", "cosine", "wsd"}},
      {"schedule.warmup_steps", &schedule.warmup_steps, "warm-up steps", {}, 0},
      {"schedule.warmup_ratio", &schedule.warmup_ratio, "warm-up as a fraction of the run", {}, 0, 1},
      {"schedule.warmup_start",
       &schedule.warmup_start,
       "warm up from zero, or start at the peak rate (one)",
       {"zero", "one"}},
      {"schedule.min_lr_factor",
       &schedule.min_lr_factor,
       "final learning rate as a fraction of the peak",
       {},
       0,
       1},
      {"schedule.start_step",
       &schedule.start_step,
       "step that the schedule counts from, for a run that resumes there: warm-up and decay cover the "
       "remaining steps",
       {},
       0,
       kMostSteps},
      {"schedule.decay_ratio",
       &schedule.decay_ratio,
       "wsd: fraction of the run in which the rate decays",
       {},
       0,
       1},

      {"precision.compute",
       &precision.compute,
       "dtype of weights and activations in computation; master weights are fp32",
       {"bf16", "fp16", "fp32"}},
      {"precision.reduce", &precision.reduce, "dtype of gradients in communication", {"fp32", "bf16"}},
      {.key = "precision.loss_scale",
       .slot = &precision.loss_scale,
       .help = "fp16 loss scale: dynamic, or a number",
       .or_number = true},
      {"precision.tf32", &precision.tf32, "use TF32 tensor cores for fp32 matrix products on a GPU"},

      {"parallel.strategy",
       &parallel.strategy,
       "what is sharded over the ranks: nothing (no_shard), the optimizer (zero1), gradients too "
       "(shard_grad_op), parameters too (full_shard), or the same within groups of ranks (hybrid)",
       {"no_shard", "zero1", "shard_grad_op", "full_shard", "hybrid"}},
      {"parallel.group_size",
       &parallel.group_size,
       "hybrid: ranks per group; each group holds one copy of the model",
       {},
       0,
       INT32_MAX},
      {"parallel.wrap",
       &parallel.wrap,
       "wrap granularity, i.e. what one communication unit holds: a block, attention and MLP apart, modules "
       "by name pattern, modules by size, or the whole model",
       {"block", "attention_mlp", "pattern", "size", "none"}},
      {"parallel.wrap_patterns", &parallel.wrap_patterns,
       "pattern: modules that become units, such as model.layers.*.mlp; the outermost match wins"},
      {"parallel.wrap_size",
       &parallel.wrap_size,
       "size: minimum parameters of a unit; the innermost module of that size wins",
       {},
       0},
      {"parallel.replicate", &parallel.replicate,
       "name patterns of parameters that stay unsharded on every rank"},
      {"parallel.offload", &parallel.offload,
       "keep shards, gradients and optimizer states in host memory and update them there; full_shard and "
       "hybrid"},
      {"parallel.keep_root_gathered", &parallel.keep_root_gathered,
       "keep the root unit (embedding, last norm, head) gathered for the whole step"},
      {"parallel.forward_prefetch", &parallel.forward_prefetch,
       "gather the parameters of the next layers during the forward pass of a layer"},
      {"parallel.backward_prefetch",
       &parallel.backward_prefetch,
       "when to gather the next layer's parameters: before the backward pass of a layer (pre), after it "
       "(post), or on demand (none)",
       {"pre", "post", "none"}},
      {"parallel.depth", &parallel.depth, "layers to prefetch ahead", {}, 1, 64},
      {"parallel.reduction",
       &parallel.reduction,
       "gradient summation: exact (same bits on any number of ranks), sequential (micro-step by micro-step, "
       "less memory), or native (the communication library's)",
       {"exact", "sequential", "native"}},
      {"parallel.accumulation",
       &parallel.accumulation,
       "reduce gradients after every micro-step (sharded), or accumulate them unsharded and reduce once "
       "(no_sync)",
       {"sharded", "no_sync"}},
      {"parallel.transport",
       &parallel.transport,
       "tensor transport; auto: NCCL if every rank has its own GPU, else MPI",
       {"auto", "mpi", "nccl"}},
      {"parallel.sync_module_states", &parallel.sync_module_states,
       "rank 0 initializes all parameters and sends each rank its shard; otherwise each rank initializes its "
       "own, with equal results"},
      {"parallel.cpu_ram_efficient_loading", &parallel.cpu_ram_efficient_loading,
       "only rank 0 reads model.init_from, one unit at a time; otherwise each rank reads its own shard"},
      {"parallel.stages",
       &parallel.stages,
       "pipeline stages: groups of ranks, each with a range of the model's layers; the ranks of a stage "
       "shard "
       "as parallel.strategy says",
       {},
       1,
       256},
      {"parallel.schedule",
       &parallel.schedule,
       "order of the micro-batches in a pipeline: 1f1b (forward and backward passes alternate), interleaved "
       "(the same, with several ranges of layers per stage), gpipe (all forward passes first), or sequential "
       "(one micro-batch at a time)",
       {"1f1b", "interleaved", "gpipe", "sequential"}},
      {"parallel.chunks", &parallel.chunks, "interleaved: ranges of layers per pipeline stage", {}, 2, 64},
      {"parallel.device_map", &parallel.device_map,
       "layers of each pipeline stage: auto (equal work), balanced or balanced_low_0 (by size, as in Hugging "
       "Face Accelerate), sequential:SIZE (stages are filled in order, each with SIZE of parameters in 16 "
       "bits, "
       "such as 20GB), or a table from prefixes of parameter names to stages"},
      {"parallel.bandwidth_gbps",
       &parallel.bandwidth_gbps,
       "receive bandwidth of a rank in GB/s, used to estimate overlap; 0 = measure at start",
       {},
       0},
      {"parallel.timeout_seconds",
       &parallel.timeout_seconds,
       "seconds a collective may take before the run ends with a report of where each rank waits",
       {},
       1,
       INT32_MAX},
  };
  for (const std::vector<Field>& more : {model_fields(c), others, saving_fields(c)})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace flatshard
