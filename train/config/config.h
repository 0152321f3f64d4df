#pragma once
// The configuration of a run: plain nested structs, and one list of fields for parsing, printing, help and
// checks. Values come from defaults, then the TOML file, then the command line (--section.key value). An
// unknown key is an Error that names the key that was probably meant.

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "comm/optimizer_kinds.h"
#include "kernels/head.h"
#include "model/config.h"
#include "model/lora.h"
#include "model/quantization.h"
#include "runtime/problems.h"
#include "train/config/lr_schedule.h"

namespace flatshard {

struct RunConfig {
  std::string dir = "runs/default";
  int64_t seed = 42;
  std::string device = "auto";
  std::string trace = "false";  // trace_steps.h
  int64_t hash_every = 0;
  int64_t threads = 0;  // 0: this rank's share of the processors
  bool cuda_graphs = false;
  std::string tuned_products;  // a file; empty: the heuristics of cuBLASLt
  std::string resume;          // "latest", "auto" or a path; empty: start fresh
};

struct DataConfig {
  std::string train, eval;
  int64_t max_samples = 0;      // 0: all
  std::string tokenizer{};      // empty: model.init_from
  std::string chat_template{};  // empty: the tokenizer's
  std::string text_field = "text";
  std::string train_on = "assistant";
  int64_t seq_len = 0;
  int64_t vocab = 0;  // 0: at least three quarters of the model's
  std::string packing = "wrapped";
  std::string truncation = "keep_start";
  std::string padding = "right";
  bool shuffle = true;
};

// Bounds of values computed in fp32: the smallest normal and the largest finite one.
inline constexpr double kLeastFloat = std::numeric_limits<float>::min(),
                        kMostFloat = std::numeric_limits<float>::max();
inline constexpr double kMostSteps = 1e12;  // of a run; exact as a double

struct TrainConfig {
  int64_t steps = 0;
  double epochs = 0;
  int64_t total_batch_size = 0;
  int64_t batch_size_per_device = 1;
  int64_t lane_size = 0;                   // 0: as batch_size_per_device
  int64_t eval_batch_size_per_device = 0;  // 0: as batch_size_per_device
  int64_t head_chunk = kHeadChunk;
  bool recompute = false;
  double eval_every = 0;
  bool eval_each_epoch = false;
  bool skip_nonfinite = false;
};

struct OptimizerConfig {
  OptimizerChoice kind;
  double lr = 0;
  std::array<double, 2> betas = kind.row->betas;  // a loaded config that sets none: of its kind
  double eps = 1e-8;
  double weight_decay = 0;
  double grad_clip = 1.0;
  std::string lr_scaling = "none";
  int64_t base_batch_size = 0;
  std::vector<std::string> no_decay{"norm", "bias", "embed"};
};

struct PrecisionConfig {
  std::string compute = "bf16";
  std::string reduce = "fp32";
  std::string loss_scale = "dynamic";
  bool tf32 = false;
};

// A kind, or the stage of each prefix of parameter names.
using DeviceMap = std::variant<std::string, std::map<std::string, double>>;

struct ParallelConfig {
  std::string strategy = "full_shard";
  int64_t group_size = 0;  // hybrid
  std::string wrap = "block";
  std::vector<std::string> wrap_patterns;  // pattern
  int64_t wrap_size = 0;                   // size
  std::vector<std::string> replicate;
  bool offload = false;
  bool keep_root_gathered = true;
  bool forward_prefetch = true;
  std::string backward_prefetch = "pre";
  int64_t depth = 1;
  std::string reduction = "exact";
  std::string accumulation = "sharded";
  std::string transport = "auto";
  bool sync_module_states = false;
  bool cpu_ram_efficient_loading = false;
  int64_t stages = 1;
  std::string schedule = "1f1b";
  int64_t chunks = 2;  // interleaved
  DeviceMap device_map = "auto";
  double bandwidth_gbps = 0;  // 0: measured at start
  int64_t timeout_seconds = 120;
};

struct LogConfig {
  int64_t every = 1;
  bool step1 = false;
  bool tensorboard = false;
};

struct CheckpointConfig {
  // Steps, a fraction of the run, or a time. By default a run of any length loses at most half an hour,
  // saving takes a small part of the time however large the model is, and `keep` bounds the disk space.
  std::string save_every = "30min";
  bool save_each_epoch = false;
  std::string best_every = "auto";  // as save_every
  int64_t keep = 2;                 // 0: all
  bool async = true;
  bool on_sigterm = true;
  std::string on_error = "stop";
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
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  PrecisionConfig precision;
  ParallelConfig parallel;
  LogConfig log;
  CheckpointConfig checkpoint;
};

// One key: its value, help text, and permitted values.
struct Field {
  using Slot = std::variant<std::string*, int64_t*, double*, bool*, std::vector<std::string>*,
                            std::vector<int64_t>*, std::array<double, 2>*, std::optional<bool>*,
                            std::optional<int64_t>*, std::optional<double>*, ModulePatterns*,
                            std::map<std::string, double>*, DeviceMap*, OptimizerChoice*>;
  std::string key;  // "optimizer.lr"
  Slot slot;
  std::string help;
  std::vector<std::string> choices{};
  double least = -1e300, most = 1e300;
  bool or_number = false;  // a string that may also be written as a number
  bool or_flag = false;    // a string that may also be true or false
};

std::vector<Field> fields(Config& c);

struct LoadedConfig {
  Config config;
  bool overwrite = false;  // replace the results in run.dir; not a key, so that no config keeps it
  std::map<std::string, std::string> origin;  // key -> "default", "tiny.toml:3" or "command line"
  std::string file{};                         // its name for messages
  // For people: values of the file that the command line replaced by an alternative key, and settings of
  // other sources that have no effect here.
  std::vector<std::string> replaced{};
  // Keys with problems: they have their defaults, and what follows from that is no problem of its own.
  std::set<std::string> refused{};
};

// A value that the file and the command line may override, as TOML, with its source for messages.
struct ConfigPreset {
  std::string key, toml, origin;
};

// Reads the file and the overrides ("optimizer.lr=3e-3", in TOML's spelling; a bare word is a string). Of
// alternatives, such as train.steps and train.epochs, one on the command line replaces the other in the file.
// The second form adds all problems, and loads the rest; the file overrides the presets.
LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides);
LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                         Problems& problems, const std::vector<ConfigPreset>& presets = {});

// The whole config as TOML, which load_config reads back to the same values; with origins as comments if
// `origin` is given.
std::string to_toml(Config& config, const std::map<std::string, std::string>* origin = nullptr);

// Every key that has a value, with the value as TOML.
std::map<std::string, std::string> config_values(Config& config);

// Quotes text as a one-line TOML string.
std::string quoted(const std::string& text);

// The help text: name, meaning, choices and default of every key.
std::string fields_help();

}  // namespace flatshard
