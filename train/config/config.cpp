#include "train/config/config.h"

#include <charconv>
#include <iomanip>
#include <sstream>
#include <utility>

#include "runtime/check.h"

namespace flatshard {
namespace {

// The shortest decimal that reads back as the same double, always recognisable as a float.
std::string number(double value) {
  std::array<char, 32> space;
  const char* const end = std::to_chars(space.data(), space.data() + space.size(), value).ptr;
  const std::string text(space.data(), static_cast<size_t>(end - space.data()));
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

struct Printer {
  std::string operator()(const std::string* v) const { return quoted(*v); }
  std::string operator()(const int64_t* v) const { return str(*v); }
  std::string operator()(const double* v) const { return number(*v); }
  std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
  std::string operator()(const std::vector<std::string>* v) const {
    std::string out = "[";
    for (const std::string& item : *v) out += (out.size() > 1 ? ", " : "") + quoted(item);
    return out + "]";
  }
  std::string operator()(const std::array<double, 2>* v) const {
    return str('[', number((*v)[0]), ", ", number((*v)[1]), ']');
  }
  template <class T>
  std::string operator()(const std::optional<T>* v) const {
    return v->has_value() ? (*this)(&v->value()) : "";
  }
};

// Bounded because a plan stores an entry per sequence of a step, and a batch indexes tokens with 32 bits.
constexpr double kMostSequences = 1 << 18, kMostTokens = INT32_MAX, kMostThreads = 1024;

std::string section_of(const std::string& key) { return key.substr(0, key.rfind('.')); }
std::string name_in_section(const std::string& key) { return key.substr(key.rfind('.') + 1); }

}  // namespace

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << '"' << std::hex << std::setfill('0');
  for (const char c : text) {
    if (const int code = static_cast<unsigned char>(c); code < 0x20 || code == 0x7f)
      out << "\\u" << std::setw(4) << code;
    else
      out << (c == '"' || c == '\\' ? "\\" : "") << c;
  }
  out << '"';
  return std::move(out).str();
}

std::vector<Field> fields(Config& c) {
  RunConfig& run = c.run;
  ModelConfig& model = c.model;
  DataConfig& data = c.data;
  TrainConfig& train = c.train;
  OptimizerConfig& optimizer = c.optimizer;
  ScheduleConfig& schedule = c.schedule;
  PrecisionConfig& precision = c.precision;
  ParallelConfig& parallel = c.parallel;
  return {
      {"run.dir", &run.dir, "run folder: metrics, resolved config, report, checkpoints"},
      {"run.seed", &run.seed, "seed of all random numbers", {}, 0},
      {"run.device",
       &run.device,
       "compute device; auto takes a GPU if there is one",
       {"auto", "cpu", "cuda"}},
      {"run.cuda_graphs", &run.cuda_graphs, "replay each micro-step as a CUDA graph; one rank on a GPU"},
      {"run.trace", &run.trace,
       "write trace.json, a timeline of all ranks for Perfetto, and overlap.svg, a picture of one step"},
      {"run.threads",
       &run.threads,
       "compute threads per rank; 0 = this rank's share of the processors",
       {},
       0,
       kMostThreads},
      {"run.hash_every", &run.hash_every, "steps between printed weight hashes; 0 = only at the end", {}, 0},
      {"run.resume", &run.resume,
       "checkpoint to resume from: \"latest\" in run.dir, or a path; same as --resume; empty = start fresh"},

      {"model.family", &model.family, "architecture family", {"llama", "mistral", "qwen2", "qwen3", "gpt2"}},
      {"model.layers", &model.layers, "number of transformer blocks", {}, 0},
      {"model.hidden", &model.hidden, "width of the residual stream", {}, 0},
      {"model.heads", &model.heads, "query heads", {}, 0},
      {"model.kv_heads", &model.kv_heads, "key/value heads; 0 = model.heads", {}, 0},
      {"model.head_dim", &model.head_dim, "head dimension; 0 = hidden / heads", {}, 0},
      {"model.ffn", &model.ffn, "MLP width; 0 = 4 x hidden", {}, 0},
      {"model.vocab", &model.vocab, "vocabulary size", {}, 0},
      {"model.max_positions", &model.max_positions, "largest position; 0 = data.seq_len", {}, 0},
      {"model.tied", &model.tied, "tie the output head to the token embedding"},
      {"model.norm_eps", &model.norm_eps, "epsilon of the norms", {}, 0, kMostFloat},
      {"model.rope_theta", &model.rope_theta, "RoPE base frequency", {}, 1},
      {"model.window", &model.window, "sliding-window size of attention; 0 = full attention", {}, 0},
      {"model.qk_norm", &model.qk_norm, "normalize q and k per head"},
      {"model.qkv_bias", &model.qkv_bias, "biases on q, k and v"},
      {"model.init_from", &c.init_from,
       "Hugging Face model folder with the initial weights; it decides all other model keys, except that "
       "model.vocab may be larger: new rows are the mean of the existing ones"},
      {"model.pad_to_multiple_of",
       &c.pad_to_multiple_of,
       "round the vocabulary up to a multiple of this",
       {},
       1,
       INT32_MAX},
      {"model.trainable", &c.trainable,
       "name patterns of the parameters to train (* matches any text); the others are frozen"},
      {"model.rope_scaling.kind",
       &model.rope_scaling.kind,
       "RoPE scaling method",
       {"none", "linear", "llama3"}},
      {"model.rope_scaling.factor", &model.rope_scaling.factor, "RoPE scaling factor", {}, 1},
      {"model.rope_scaling.low_freq_factor", &model.rope_scaling.low_freq_factor,
       "llama3: frequencies below this are fully scaled"},
      {"model.rope_scaling.high_freq_factor", &model.rope_scaling.high_freq_factor,
       "llama3: frequencies above this are not scaled"},
      {"model.rope_scaling.original_max_positions",
       &model.rope_scaling.original_max_positions,
       "llama3: context length before scaling",
       {},
       1},

      {"data.train", &data.train, "token file to train on, made by prepare"},
      {"data.eval", &data.eval, "token file to evaluate on; empty = no evaluation"},
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
       "(wrapped) or "
       "do not (documents), whole documents packed tightly, longer ones truncated (best_fit) or split "
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
       "ranks and micro-steps; 0 = batch_size_per_device",
       {},
       0,
       kMostSequences},
      {"train.eval_batch_size_per_device",
       &train.eval_batch_size_per_device,
       "sequences per evaluation batch of one rank; 0 = batch_size_per_device",
       {},
       0,
       kMostSequences},
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

      {"optimizer.lr", &optimizer.lr, "peak learning rate", {}, 0, kMostFloat},
      {"optimizer.betas", &optimizer.betas, "decay rates of the first and second moment", {}, 0, 1},
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
       "gather the parameters of the next stages during the forward pass of a stage"},
      {"parallel.backward_prefetch",
       &parallel.backward_prefetch,
       "when to gather the next stage's parameters: before the backward pass of a stage (pre), after it "
       "(post), or on demand (none)",
       {"pre", "post", "none"}},
      {"parallel.depth", &parallel.depth, "stages to prefetch ahead", {}, 1, 64},
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

      {"checkpoint.save_every",
       &c.checkpoint.save_every,
       "steps between checkpoints, plus one at the end; below 1: a fraction of the run; 0 = never",
       {},
       0,
       kMostSteps},
      {"checkpoint.save_each_epoch", &c.checkpoint.save_each_epoch, "save at the end of every epoch too"},
      {"checkpoint.keep",
       &c.checkpoint.keep,
       "checkpoints to keep, besides the one with the lowest evaluation loss; 0 = all",
       {},
       0},
      {"checkpoint.async", &c.checkpoint.async,
       "write from a copy in host memory while training continues; otherwise training waits"},
      {"checkpoint.on_sigterm", &c.checkpoint.on_sigterm,
       "save a checkpoint when a signal (SIGTERM, SIGINT, SIGUSR1, SIGHUP) ends the run"},
      {"checkpoint.on_error",
       &c.checkpoint.on_error,
       "if a checkpoint cannot be written: stop the run, or continue with a warning",
       {"stop", "continue"}},
      {.key = "checkpoint.shard_size",
       .slot = &c.checkpoint.shard_size,
       .help = "maximum size of one weights file, e.g. 5GB or 200MB; a larger model is split, with an index",
       .or_number = true},

      {"log.every", &c.log.every, "steps between progress lines", {}, 1},
      {"log.step1", &c.log.step1,
       "after step 1, print every rank's memory and first row (step1.txt has them in any case)"},
  };
}

std::string to_toml(Config& config, const std::map<std::string, std::string>* origin) {
  std::ostringstream out;
  std::string section;
  for (const Field& field : fields(config)) {
    const std::string value = std::visit(Printer{}, field.slot);
    if (value.empty()) continue;
    if (section_of(field.key) != section) {
      out << (section.empty() ? "" : "\n") << '[' << section_of(field.key) << "]\n";
      section = section_of(field.key);
    }
    std::string line = name_in_section(field.key) + " = " + value;
    if (origin)
      line += std::string(line.size() < 44 ? 44 - line.size() : 1, ' ') + "# " + origin->at(field.key);
    out << line << '\n';
  }
  return std::move(out).str();
}

std::map<std::string, std::string> config_values(Config& config) {
  std::map<std::string, std::string> values;
  for (const Field& field : fields(config))
    if (std::string value = std::visit(Printer{}, field.slot); !value.empty())
      values[field.key] = std::move(value);
  return values;
}

std::string fields_help() {
  Config defaults;
  std::ostringstream out;
  for (const Field& field : fields(defaults)) {
    const std::string value = std::visit(Printer{}, field.slot);
    out << "  " << std::left << std::setw(38) << field.key << ' ' << field.help;
    if (!field.choices.empty()) {
      const char* separator = ": ";
      for (const std::string& choice : field.choices) out << std::exchange(separator, ", ") << choice;
    }
    out << " [" << (value.empty() ? "decided by the family" : value) << "]\n";
  }
  return std::move(out).str();
}

}  // namespace flatshard
