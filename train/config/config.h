#pragma once
// The configuration of a run: plain nested structs. Values come from defaults, then the TOML file, then the
// command line (--section.key value). fields.h lists the keys; configs are parsed, printed and documented by
// that list. An unknown key is an Error that names the key that was probably meant.

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "comm/optimizer_kinds.h"
#include "comm/slots.h"
#include "kernels/answer_loss.h"
#include "kernels/head.h"
#include "model/config.h"
#include "model/lora.h"
#include "model/quantization.h"
#include "runtime/precision.h"
#include "runtime/problems.h"
#include "text/data/packing.h"
#include "text/data/sample_encoder.h"
#include "train/config/lr_schedule.h"

namespace flatshard {

// The files of data.train or data.eval: one, several, or several with names of their own. A file without such
// a name is called as its path is up to the first dot of the last component, and without the folder where
// that is enough to tell it from the others: the names distinguish the losses of the files.
struct NamedFile {
  std::string name, path;
  bool operator==(const NamedFile&) const = default;
};

using DataFiles = std::variant<std::string, std::vector<std::string>, std::vector<NamedFile>>;

inline constexpr size_t kMostDataFiles = 256;

// Returns the files in the order of the config; none for "". Names consist of letters, digits and the
// characters . _ - /.
std::vector<NamedFile> named_files(const DataFiles& files);

// An Error if the files of this key are too many, are not distinct, or have names with other characters.
void check_data_files(const char* key, const DataFiles& files);

// Choices that only the trainer interprets; the other enums are in the folders that implement them.
enum class DeviceChoice { automatic, cpu, cuda };
constexpr auto value_names(DeviceChoice) { return std::array{"auto", "cpu", "cuda"}; }
enum class ProductChoice { automatic, cublaslt, own };
constexpr auto value_names(ProductChoice) { return std::array{"auto", "cublaslt", "own"}; }
enum class AttentionChoice { automatic, one_pass, sm_80 };
constexpr auto value_names(AttentionChoice) { return std::array{"auto", "one_pass", "sm_80"}; }
enum class CudaGraphs { off, on, automatic };
constexpr auto value_names(CudaGraphs) { return std::array{"false", "true", "auto"}; }
enum class Recompute { none, full, selective, except_attention };
constexpr auto value_names(Recompute) { return std::array{"false", "true", "selective", "except_attention"}; }
// Whether backward passes repeat the forward passes of whole blocks.
constexpr bool repeats_blocks(Recompute recompute) {
  return recompute == Recompute::full || recompute == Recompute::except_attention;
}
enum class LrScaling { none, linear, sqrt };
constexpr auto value_names(LrScaling) { return std::array{"none", "linear", "sqrt"}; }
enum class WrapPolicy { block, attention_mlp, pattern, size, none };
constexpr auto value_names(WrapPolicy) {
  return std::array{"block", "attention_mlp", "pattern", "size", "none"};
}
enum class BackwardPrefetch { pre, post, none };
constexpr auto value_names(BackwardPrefetch) { return std::array{"pre", "post", "none"}; }
enum class Accumulation { sharded, no_sync };
constexpr auto value_names(Accumulation) { return std::array{"sharded", "no_sync"}; }
enum class LevelChoice { automatic, one, two };
constexpr auto value_names(LevelChoice) { return std::array{"auto", "one", "two"}; }
enum class TransportChoice { automatic, mpi, nccl };
constexpr auto value_names(TransportChoice) { return std::array{"auto", "mpi", "nccl"}; }
enum class PipelineSchedule { one_f_one_b, interleaved, gpipe, sequential };
constexpr auto value_names(PipelineSchedule) {
  return std::array{"1f1b", "interleaved", "gpipe", "sequential"};
}
enum class DeviceMapKind { automatic, balanced, balanced_low_0 };
constexpr auto value_names(DeviceMapKind) { return std::array{"auto", "balanced", "balanced_low_0"}; }
enum class OnSaveError { stop, warn };
constexpr auto value_names(OnSaveError) { return std::array{"stop", "continue"}; }

struct RunConfig {
  std::string dir = "runs/default";
  int64_t seed = 42;
  DeviceChoice device = DeviceChoice::automatic;
  std::string trace = "false";  // the steps to trace: trace_steps.h
  int64_t hash_every = 0;
  int64_t threads = 0;  // compute threads; 0: this rank's share of the processors
  CudaGraphs cuda_graphs = CudaGraphs::automatic;
  AttentionChoice attention = AttentionChoice::automatic;
  ProductChoice products = ProductChoice::automatic;
  bool balanced_routing = false;      // tokens go to experts in turn
  std::string tuned_products;         // file of timed algorithms; empty: the heuristics of cuBLASLt
  int64_t spare_multiprocessors = 0;  // multiprocessors of a GPU that matrix products leave free
  std::string resume;                 // "latest", "best", "auto" or a path; empty: start fresh
};

struct DataConfig {
  DataFiles train{};
  std::vector<double> weights{};  // relative numbers of sequences per file; empty: by size
  DataFiles eval{};
  int64_t max_samples = 0;      // 0: all
  std::string tokenizer{};      // empty: that of model.init_from
  std::string chat_template{};  // empty: the tokenizer's
  std::string date{};           // empty: the day on which the run begins
  std::string text_field = "text";
  std::vector<std::string> columns{};  // columns to read of tables; empty: all
  TrainOn train_on = TrainOn::assistant;
  int64_t image_longest_edge = 0;  // 0: as the tokenizer's folder says
  int64_t seq_len = 0;
  int64_t vocab = 0;  // vocabulary of token files; 0: three quarters of model.vocab, up to all
  Packing packing = Packing::wrapped;
  Truncation truncation = Truncation::keep_start;
  Padding padding = Padding::right;
  int64_t max_patches = 0;  // most patches in a sequence; 0: as many as the largest image has
  bool shuffle = true;
};

// Bounds of values computed in fp32: the smallest normal and the largest finite one.
inline constexpr double kLeastFloat = std::numeric_limits<float>::min(),
                        kMostFloat = std::numeric_limits<float>::max();
inline constexpr double kMostSteps = 1e12;  // most steps of a run; exact as a double

struct TrainConfig {
  int64_t steps = 0;
  double epochs = 0;
  int64_t total_batch_size = 0;
  int64_t batch_size_per_device = 1;
  int64_t lane_size = 0;                   // 0: the default of lane_size_of() in setup/batching.h
  int64_t eval_batch_size_per_device = 0;  // 0: batch_size_per_device
  int64_t head_chunk = kHeadChunk;
  int64_t tile = 0;                         // 0: all tokens of a micro-batch's lane
  std::optional<double> router_aux_loss{};  // empty: that of the model
  double router_z_loss = 0;
  double router_bias_rate = 0;
  Recompute recompute = Recompute::none;
  bool offload_activations = false;
  double eval_every = 0;
  bool eval_each_epoch = false;
  int64_t stop_after_no_improvement = 0;  // evaluations; 0: never
  bool skip_nonfinite = false;
};

struct OptimizerConfig {
  OptimizerChoice kind;
  double lr = 0;
  std::array<double, 2> betas = kind.row->betas;  // default of the optimizer's kind
  double eps = 1e-8;
  double weight_decay = 0;
  double grad_clip = 1.0;
  LrScaling lr_scaling = LrScaling::none;
  int64_t base_batch_size = 0;
  std::vector<std::string> no_decay{"norm", "bias", "embed"};
};

struct PrecisionConfig {
  Precision compute = Precision::bf16;
  Precision reduce = Precision::fp32;  // fp32 or bf16
  std::string loss_scale = "dynamic";
  bool tf32 = false;
};

// A kind, "sequential:SIZE" (setup/device_map.h refuses other texts), or a stage for each prefix of parameter
// names.
using DeviceMap = std::variant<DeviceMapKind, std::string, std::map<std::string, double>>;

struct ParallelConfig {
  Strategy strategy = Strategy::full_shard;
  int64_t group_size = 0;  // ranks per group, if strategy is hybrid
  WrapPolicy wrap = WrapPolicy::block;
  std::vector<std::string> wrap_patterns;  // module patterns, if wrap is pattern
  int64_t wrap_size = 0;                   // minimum parameters of a unit, if wrap is size
  std::vector<std::string> replicate;
  bool offload = false;
  bool keep_root_gathered = true;
  bool forward_prefetch = true;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
  int64_t depth = 1;
  Reduction reduction = Reduction::exact;
  LevelChoice levels = LevelChoice::automatic;
  int64_t host_ranks = 0;  // consecutive ranks on a host; 0: detected
  Accumulation accumulation = Accumulation::sharded;
  TransportChoice transport = TransportChoice::automatic;
  bool sync_module_states = false;
  bool cpu_ram_efficient_loading = false;
  int64_t expert_ranks = 1;  // consecutive ranks that divide the experts of each block among them
  int64_t stages = 1;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int64_t chunks = 2;  // chunks per stage, if schedule is interleaved
  DeviceMap device_map = DeviceMapKind::automatic;
  double bandwidth_gbps = 0;  // 0: measured at start
  int64_t timeout_seconds = 120;
};

struct LogConfig {
  int64_t every = 1;
  bool step1 = false;
  bool tensorboard = false;
  std::string samples{};      // file of prompts; empty: none
  int64_t sample_length = 0;  // tokens of a sample, with its prompt; 0: 256, or all positions
};

struct CheckpointConfig {
  // Steps, a fraction of the run, or a time. By default a run of any length loses at most half an hour,
  // saving takes a small part of the time however large the model is, and `keep` bounds the disk space.
  std::string save_every = "30min";
  bool save_each_epoch = false;
  std::string best_every = "auto";  // the forms of save_every, or "auto"
  int64_t keep = 2;                 // checkpoints to keep; 0: all
  bool async = true;
  bool on_sigterm = true;
  OnSaveError on_error = OnSaveError::stop;
  std::string shard_size = "5GB";
};

struct Config {
  RunConfig run;
  ModelConfig model;
  std::vector<std::string> trainable{"*"};
  std::string init_from;  // empty: random initial values
  std::string adapter;    // folder of an adapter; empty: none
  int64_t pad_to_multiple_of = 1;
  LoraConfig lora;
  QuantConfig quant;
  DataConfig data;
  TrainConfig train;
  AnswerLoss loss;  // train.loss and the sections preference and policy
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  PrecisionConfig precision;
  ParallelConfig parallel;
  LogConfig log;
  CheckpointConfig checkpoint;
};

struct LoadedConfig {
  Config config;
  bool overwrite = false;  // replace the results in run.dir; not a key, so that no config keeps it
  std::map<std::string, std::string> origin;  // key -> "default", "tiny.toml:3" or "command line"
  std::string file{};                         // the path of the config, for messages
  // Notes for the user: values of the file that the command line replaced by an alternative key, and settings
  // of other sources that have no effect here.
  std::vector<std::string> replaced{};
  // Keys with problems. They have their defaults, and problems that follow from that are not reported.
  std::set<std::string> refused{};
};

// A value that the file and the command line may override, as TOML, with its source for messages.
struct ConfigPreset {
  std::string key, toml, origin;
};

// Reads the file and the overrides ("optimizer.lr=3e-3", in TOML's spelling; a bare word is a string). An
// alternative on the command line, such as train.steps, replaces the other in the file, such as train.epochs.
// The second form adds all problems, and loads the rest; the file overrides the presets.
LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides);
LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                         Problems& problems, const std::vector<ConfigPreset>& presets = {});

// The config with these overrides. An Error names all problems.
Config overridden(const Config& config, const std::vector<std::string>& overrides);

// The whole config as TOML, which load_config reads back to the same values; with origins as comments if
// `origin` is given.
std::string to_toml(Config& config, const std::map<std::string, std::string>* origin = nullptr);

// Every key that has a value, with the value as TOML.
std::map<std::string, std::string> config_values(Config& config);

// Quotes text as a one-line TOML string.
std::string quoted(const std::string& text);

}  // namespace flatshard
