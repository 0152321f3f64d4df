#include "train/config/config.h"

#include <charconv>
#include <iomanip>
#include <sstream>

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

// What a plan keeps for each sequence of a step must fit into any memory; a batch's tokens have 32 bits.
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
      {"run.dir", &run.dir, "folder of the run: metrics, resolved config, report"},
      {"run.seed", &run.seed, "start of all randomness", {}, 0},
      {"run.device",
       &run.device,
       "where to compute; auto takes a GPU when there is one",
       {"auto", "cpu", "cuda"}},
      {"run.cuda_graphs", &run.cuda_graphs,
       "one rank on a GPU: capture each micro-step in a CUDA graph, which the host starts with one call"},
      {"run.trace", &run.trace,
       "write trace.json, a timeline of all ranks for Perfetto, and overlap.svg, a picture of one step"},
      {"run.threads",
       &run.threads,
       "threads of a rank; 0 = its share of the processors",
       {},
       0,
       kMostThreads},
      {"run.hash_every",
       &run.hash_every,
       "print the hash of the weights every so many steps; 0 = at the end",
       {},
       0},
      {"run.resume", &run.resume,
       "go on from a checkpoint: latest of run.dir, or the path of one; as --resume. Empty = begin anew"},

      {"model.family",
       &model.family,
       "row of architectural choices",
       {"llama", "mistral", "qwen2", "qwen3", "gpt2"}},
      {"model.layers", &model.layers, "transformer blocks", {}, 0},
      {"model.hidden", &model.hidden, "width of the residual stream", {}, 0},
      {"model.heads", &model.heads, "query heads", {}, 0},
      {"model.kv_heads", &model.kv_heads, "key and value heads; 0 = as many as heads", {}, 0},
      {"model.head_dim", &model.head_dim, "size of a head; 0 = hidden / heads", {}, 0},
      {"model.ffn", &model.ffn, "width of the MLP; 0 = 4 hidden", {}, 0},
      {"model.vocab", &model.vocab, "tokens in the vocabulary", {}, 0},
      {"model.max_positions", &model.max_positions, "longest position; 0 = data.seq_len", {}, 0},
      {"model.tied", &model.tied, "output head = token embedding"},
      {"model.norm_eps", &model.norm_eps, "added to the mean square in a norm", {}, 0},
      {"model.rope_theta", &model.rope_theta, "base of the rotary frequencies", {}, 1},
      {"model.window", &model.window, "sliding window of the attention; 0 = none", {}, 0},
      {"model.qk_norm", &model.qk_norm, "normalise each head of q and k"},
      {"model.qkv_bias", &model.qkv_bias, "biases on q, k and v"},
      {"model.init_from", &c.init_from,
       "folder with a config.json and weights as Hugging Face has them, to begin with: it decides the other "
       "keys of the model; model.vocab may be larger, then new rows are the mean of the others"},
      {"model.pad_to_multiple_of",
       &c.pad_to_multiple_of,
       "the vocabulary is rounded up to a multiple of this",
       {},
       1,
       INT32_MAX},
      {"model.trainable", &c.trainable,
       "patterns (* is any text) of names to train; the others stay as they are"},
      {"model.rope_scaling.kind",
       &model.rope_scaling.kind,
       "stretching of positions",
       {"none", "linear", "llama3"}},
      {"model.rope_scaling.factor", &model.rope_scaling.factor, "by how much", {}, 1},
      {"model.rope_scaling.low_freq_factor", &model.rope_scaling.low_freq_factor,
       "llama3: where stretching is whole"},
      {"model.rope_scaling.high_freq_factor", &model.rope_scaling.high_freq_factor,
       "llama3: where it begins"},
      {"model.rope_scaling.original_max_positions",
       &model.rope_scaling.original_max_positions,
       "llama3: positions before stretching",
       {},
       1},

      {"data.train", &data.train, "token file to train on (made by prepare)"},
      {"data.eval", &data.eval, "token file to evaluate on; empty = none"},
      {"data.seq_len", &data.seq_len, "tokens per sequence", {}, 0, kMostTokens},
      {"data.packing",
       &data.packing,
       "documents side by side, or masked at their boundaries",
       {"concat", "documents"}},
      {"data.shuffle", &data.shuffle, "a new order of the sequences in every epoch"},

      {"train.steps", &train.steps, "optimizer steps; or give train.epochs", {}, 0, kMostSteps},
      {"train.epochs", &train.epochs, "passes over the data; or give train.steps", {}, 0},
      {"train.total_batch_size",
       &train.total_batch_size,
       "sequences per optimizer step, over all ranks",
       {},
       0,
       kMostSequences},
      {"train.batch_size_per_device",
       &train.batch_size_per_device,
       "sequences per micro-batch of a rank",
       {},
       1,
       kMostSequences},
      {"train.lane_size",
       &train.lane_size,
       "sequences computed together; the bits of a run depend on it alone, not on how lanes are spread over "
       "ranks and micro-steps; 0 = batch_size_per_device",
       {},
       0,
       kMostSequences},
      {"train.eval_batch_size_per_device",
       &train.eval_batch_size_per_device,
       "the same in evaluation; 0 = as in training",
       {},
       0,
       kMostSequences},
      {"train.recompute", &train.recompute,
       "keep only the blocks' inputs and compute the rest again in the backward pass"},
      {"train.eval_every",
       &train.eval_every,
       "steps between evaluations; below 1 a share of the run; 0 = never",
       {},
       0,
       kMostSteps},
      {"train.skip_nonfinite", &train.skip_nonfinite,
       "skip a step with a NaN or infinite gradient instead of stopping"},

      {"optimizer.lr", &optimizer.lr, "peak learning rate", {}, 0},
      {"optimizer.betas", &optimizer.betas, "decay of the first and second moment", {}, 0, 1},
      {"optimizer.eps", &optimizer.eps, "added to the root of the second moment", {}, 0},
      {"optimizer.weight_decay", &optimizer.weight_decay, "decoupled weight decay", {}, 0},
      {"optimizer.grad_clip", &optimizer.grad_clip, "largest global gradient norm; 0 = no clipping", {}, 0},
      {"optimizer.lr_scaling",
       &optimizer.lr_scaling,
       "lr times k or sqrt(k), k = total / base batch size",
       {"none", "linear", "sqrt"}},
      {"optimizer.base_batch_size",
       &optimizer.base_batch_size,
       "batch size that optimizer.lr was chosen for",
       {},
       0},
      {"optimizer.no_decay", &optimizer.no_decay,
       "kinds (norm, bias, embed) and name patterns of parameters without weight decay"},

      {"schedule.kind",
       &schedule.kind,
       "course of the learning rate",
       {"linear", "constant", "cosine", "wsd"}},
      {"schedule.warmup_steps", &schedule.warmup_steps, "steps of warm-up", {}, 0},
      {"schedule.warmup_ratio", &schedule.warmup_ratio, "or their share of the run", {}, 0, 1},
      {"schedule.warmup_start", &schedule.warmup_start, "warm up from zero, or not at all", {"zero", "one"}},
      {"schedule.min_lr_factor",
       &schedule.min_lr_factor,
       "floor of the learning rate, times the peak",
       {},
       0,
       1},
      {"schedule.decay_ratio",
       &schedule.decay_ratio,
       "wsd: share of the run in which the rate falls",
       {},
       0,
       1},

      {"precision.compute",
       &precision.compute,
       "dtype of weights and activations in computation; masters are fp32",
       {"bf16", "fp16", "fp32"}},
      {"precision.reduce", &precision.reduce, "dtype in which gradients travel", {"fp32", "bf16"}},
      {"precision.loss_scale", &precision.loss_scale, "fp16: dynamic, or a number"},
      {"precision.tf32", &precision.tf32,
       "fp32 on a GPU: tensor cores multiply matrices, whose values are rounded to 11 bits for it"},

      {"parallel.strategy",
       &parallel.strategy,
       "what is sharded over the ranks: nothing, the optimizer, gradients as well, parameters as well, all "
       "that inside groups of ranks",
       {"no_shard", "zero1", "shard_grad_op", "full_shard", "hybrid"}},
      {"parallel.group_size",
       &parallel.group_size,
       "hybrid: ranks that share one copy of everything",
       {},
       0,
       INT32_MAX},
      {"parallel.wrap",
       &parallel.wrap,
       "what travels as one: a block, its attention and its MLP by themselves, modules by name or by size, "
       "the whole model",
       {"block", "attention_mlp", "pattern", "size", "none"}},
      {"parallel.wrap_patterns", &parallel.wrap_patterns,
       "pattern: modules that travel as one, such as model.layers.*.mlp; the outermost counts"},
      {"parallel.wrap_size",
       &parallel.wrap_size,
       "size: a module with as many parameters travels as one, innermost first",
       {},
       0},
      {"parallel.replicate", &parallel.replicate,
       "parameters whose values stay whole on every rank; * stands for any text"},
      {"parallel.offload", &parallel.offload,
       "full_shard, hybrid: shards, gradients and the optimizer live in host memory, which updates them"},
      {"parallel.keep_root_gathered", &parallel.keep_root_gathered,
       "what no unit takes (embedding, last norm, head) stays whole for the whole step"},
      {"parallel.forward_prefetch", &parallel.forward_prefetch,
       "gather the next stages' parameters while a stage computes"},
      {"parallel.backward_prefetch",
       &parallel.backward_prefetch,
       "gather the next ones before a stage's backward pass, after it, or when they are needed",
       {"pre", "post", "none"}},
      {"parallel.depth", &parallel.depth, "how many stages ahead to gather", {}, 1, 64},
      {"parallel.reduction",
       &parallel.reduction,
       "how gradients are summed: the same bits on any number of ranks; micro-steps in turn, with less "
       "memory; "
       "the library's way",
       {"exact", "sequential", "native"}},
      {"parallel.accumulation",
       &parallel.accumulation,
       "exchange gradients after every micro-step, or sum them whole and exchange them once",
       {"sharded", "no_sync"}},
      {"parallel.transport",
       &parallel.transport,
       "what carries tensors: auto is NCCL where each rank has a GPU of its own, MPI elsewhere",
       {"auto", "mpi", "nccl"}},
      {"parallel.sync_module_states", &parallel.sync_module_states,
       "rank 0 makes all first values and sends each rank its shards; otherwise each makes its own, the "
       "same"},
      {"parallel.cpu_ram_efficient_loading", &parallel.cpu_ram_efficient_loading,
       "model.init_from: rank 0 alone reads, and sends the others one unit at a time, as with "
       "parallel.sync_module_states; otherwise each reads what it owns"},
      {"parallel.bandwidth_gbps",
       &parallel.bandwidth_gbps,
       "GB/s that a rank receives, to tell how many tokens hide the exchange; 0 = measured at start",
       {},
       0},
      {"parallel.timeout_seconds",
       &parallel.timeout_seconds,
       "a rank that waits longer than this for the others ends the run, and says in which collective",
       {},
       1,
       INT32_MAX},

      {"checkpoint.save_every",
       &c.checkpoint.save_every,
       "steps between checkpoints, and one at the end; below 1 a share of the run; 0 = never",
       {},
       0,
       kMostSteps},
      {"checkpoint.keep",
       &c.checkpoint.keep,
       "how many to keep, beside the one with the lowest evaluation loss; 0 = all",
       {},
       0},
      {"checkpoint.async", &c.checkpoint.async,
       "write from a copy in host memory while training goes on; otherwise training waits, and no copy is "
       "made"},
      {"checkpoint.on_sigterm", &c.checkpoint.on_sigterm,
       "save one when a signal (SIGTERM, SIGINT, SIGUSR1) ends the run"},
      {"checkpoint.on_error",
       &c.checkpoint.on_error,
       "a checkpoint that cannot be written stops the run, or is given up with a warning",
       {"stop", "continue"}},
      {"checkpoint.shard_size", &c.checkpoint.shard_size,
       "tensors in one file, as 5GB, 200MB or a number of bytes; a larger model is cut into several, with an "
       "index"},

      {"log.every", &c.log.every, "steps between progress lines", {}, 1},
      {"log.step1", &c.log.step1,
       "after step 1 print every rank's memory and first row; step1.txt has them in any case"},
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
      out << ':';
      for (const std::string& choice : field.choices) out << ' ' << choice;
    }
    out << " [" << (value.empty() ? "by the family" : value) << "]\n";
  }
  return std::move(out).str();
}

}  // namespace flatshard
