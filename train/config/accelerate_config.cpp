#include "train/config/accelerate_config.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "runtime/check.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/config/config.h"
#include "train/config/wrapped_classes.h"
#include "train/config/yaml_mapping.h"

namespace flatshard {
namespace {

constexpr int64_t kMostFileBytes = 1 << 20;

struct Choice {
  const char *word, *ours;  // ours: our word; "" if there is none
};
using Choices = std::vector<Choice>;

const Choices kStrategies{{"FULL_SHARD", "full_shard"},
                          {"SHARD_GRAD_OP", "shard_grad_op"},
                          {"NO_SHARD", "no_shard"},
                          {"HYBRID_SHARD", "hybrid"},
                          {"HYBRID_SHARD_ZERO2", ""}};
const Choices kPrefetches{{"BACKWARD_PRE", "pre"}, {"BACKWARD_POST", "post"}, {"NO_PREFETCH", "none"}};
const Choices kWraps{{"TRANSFORMER_BASED_WRAP", "block"}, {"SIZE_BASED_WRAP", "size"}, {"NO_WRAP", "none"}};
const Choices kStateDicts{
    {"FULL_STATE_DICT", "full"}, {"SHARDED_STATE_DICT", "sharded"}, {"LOCAL_STATE_DICT", "local"}};
const Choices kPrecisions{{"NO", "fp32"}, {"FP16", "fp16"}, {"BF16", "bf16"}, {"FP8", ""}};
const Choices kKinds{{"NO", "one"},     {"MULTI_GPU", "replicas"}, {"MULTI_CPU", "replicas"},
                     {"FSDP", "fsdp"},  {"DEEPSPEED", ""},         {"MEGATRON_LM", ""},
                     {"MULTI_NPU", ""}, {"MULTI_XPU", ""},         {"TPU", ""},
                     {"XLA", ""},       {"MULTI_HPU", ""},         {"MULTI_MLU", ""}};

// Switches with the same meaning here.
struct Switch {
  const char *name, *key;
};
constexpr Switch kSwitches[] = {{"fsdp_activation_checkpointing", "train.recompute"},
                                {"fsdp_cpu_ram_efficient_loading", "parallel.cpu_ram_efficient_loading"},
                                {"fsdp_forward_prefetch", "parallel.forward_prefetch"},
                                {"fsdp_offload_params", "parallel.offload"}};

// Keys about the launcher or the machine, which have no meaning for a run.
const std::set<std::string> kOfLauncher{"dynamo_config",
                                        "gpu_ids",
                                        "machine_rank",
                                        "main_process_ip",
                                        "main_process_port",
                                        "main_training_function",
                                        "mpirun_config",
                                        "num_machines",
                                        "rdzv_backend",
                                        "same_network",
                                        "tpu_env"};
// Keys that tell a trainer's config from a file of accelerate.
const std::set<std::string> kOfTrainers{
    "base_model",       "checkpointer",     "datasets",
    "learning_rate",    "micro_batch_size", "model_name_or_path",
    "num_train_epochs", "output_dir",       "per_device_train_batch_size"};
// Switches that must be off here, and what they are for.
const std::map<std::string, std::string> kMustBeOff{
    {"tpu_use_cluster", "TPUs"}, {"tpu_use_sudo", "TPUs"}, {"downcast_bf16", "TPUs"}};

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// A value with its source.
struct Given {
  std::string name, value, origin;
};

class Reader {
 public:
  // `defaults`: the source cited for keys that are not given; "" if they are left alone.
  Reader(std::map<std::string, Given> given, std::string defaults)
      : given_(std::move(given)), defaults_(std::move(defaults)) {}

  AccelerateSettings take() { return std::move(settings_); }

  void read_machine() {
    const std::string kind = choice("distributed_type", kKinds, "NO");
    const std::optional<Given> environment = find("compute_environment");
    check(!environment || upper(environment->value) == "LOCAL_MACHINE", origin_of("compute_environment"),
          ": compute_environment is \"", environment ? environment->value : "",
          "\", must be LOCAL_MACHINE: start train with mpirun or srun");
    for (const auto& [name, what] : kMustBeOff)
      check(!is_on(name), origin_of(name), ": ", name, " is for ", what,
            ", which are not supported: set it to false");
    if (is_on("use_cpu")) set("run.device", "\"cpu\"", "use_cpu");
    if (is_on("enable_cpu_affinity"))
      notice("enable_cpu_affinity", "bind ranks with mpirun --bind-to instead");
    if (is_on("debug")) notice("debug", "collectives are always checked");
    set("precision.compute", quoted(choice("mixed_precision", kPrecisions, "NO")), "mixed_precision");
    if (const std::optional<int64_t> n = number("num_processes")) {
      check(*n >= 1 && *n <= INT32_MAX, origin_of("num_processes"), ": num_processes is ", *n,
            ", must be from 1 to ", INT32_MAX);
      settings_.processes = static_cast<int>(*n);
    }
    check(kind != "one" || settings_.processes.value_or(1) == 1, origin_of("num_processes"),
          ": num_processes is ", settings_.processes.value_or(1), ", but distributed_type NO is one process");
    if (kind == "fsdp") return;
    set("parallel.strategy", "\"no_shard\"", "distributed_type");
    if (find("fsdp_config")) notice("fsdp_config", "it has an effect with distributed_type FSDP only");
  }

  void read_fsdp_if_used() {
    if (choice("distributed_type", kKinds, "NO") == "fsdp") return read_fsdp();
    for (const auto& [name, given] : given_)
      if (name.starts_with("fsdp_")) read_.insert(name);
  }

  void read_fsdp() {
    const int64_t version = number("fsdp_version").value_or(1);
    check(version == 1 || version == 2, origin_of("fsdp_version"), ": fsdp_version is ", version,
          ", must be 1 or 2");
    read_strategy(version);
    for (const auto& [name, key] : kSwitches)
      if (find(name) || has_defaults()) set(key, is_on(name) ? "true" : "false", name);
    read_loading(version);
    if (version == 1 && (find("fsdp_backward_prefetch") || has_defaults()))
      set("parallel.backward_prefetch", quoted(choice("fsdp_backward_prefetch", kPrefetches, "NO_PREFETCH")),
          "fsdp_backward_prefetch");
    check(version == 1 || !is_on("fsdp_forward_prefetch"), origin_of("fsdp_forward_prefetch"),
          ": fsdp_forward_prefetch does not exist in FSDP version 2: remove it");
    for (const char* name : {"fsdp_use_orig_params", "fsdp_backward_prefetch", "fsdp_sync_module_states"})
      if (version == 2 && find(name)) notice(name, "it has no meaning in FSDP version 2");
    if (version == 1 && is_on("fsdp_use_orig_params"))
      notice("fsdp_use_orig_params", "parameters keep their names and optimizer groups either way");
    if (find("fsdp_state_dict_type")) {
      choice("fsdp_state_dict_type", kStateDicts, "FULL_STATE_DICT");
      notice("fsdp_state_dict_type", "a checkpoint is written by all ranks and read by any number of them");
    }
    check(
        !find("fsdp_ignored_modules"), origin_of("fsdp_ignored_modules"),
        ": fsdp_ignored_modules is not supported: name parameters that stay unsharded in parallel.replicate");
    read_wrapping();
  }

  // Refuses names that nothing has read.
  void check_names(const std::set<std::string>& containers) const {
    for (const auto& [name, given] : given_)
      check(read_.contains(name) || kOfLauncher.contains(name) || containers.contains(name), given.origin,
            ": unknown key ", name, "; accelerate has none of this name");
  }

 private:
  bool has_defaults() const { return !defaults_.empty(); }
  std::optional<Given> find(const std::string& name) {
    read_.insert(name);
    const auto found = given_.find(name);
    if (found == given_.end()) return std::nullopt;
    return found->second;
  }
  std::string origin_of(const std::string& name) {
    const std::optional<Given> given = find(name);
    return given ? given->origin : defaults_;
  }
  void set(const std::string& key, const std::string& toml, const std::string& name) {
    settings_.presets.push_back({key, toml, origin_of(name)});
  }
  void notice(const std::string& name, const std::string& why) {
    settings_.notices.push_back(str(origin_of(name), ": ", name, " is ignored: ", why));
  }

  bool is_on(const std::string& name) {
    const std::optional<Given> given = find(name);
    if (!given || given->value.empty()) return false;
    const std::string word = upper(given->value);
    if (word == "TRUE" || word == "YES" || word == "ON" || word == "1") return true;
    check(word == "FALSE" || word == "NO" || word == "OFF" || word == "0", given->origin, ": ", name,
          " is \"", printable(given->value), "\", must be true or false");
    return false;
  }

  std::optional<int64_t> number(const std::string& name) {
    const std::optional<Given> given = find(name);
    if (!given || given->value.empty()) return std::nullopt;
    const std::string& v = given->value;
    check(v.size() <= 15 && std::all_of(v.begin(), v.end(), [](unsigned char c) { return std::isdigit(c); }),
          given->origin, ": ", name, " is \"", printable(v), "\", must be a whole number");
    return std::stoll(v);
  }

  // Our word for a value, which may also be its number in the list, from 1.
  std::string choice(const std::string& name, const Choices& choices, const std::string& fallback) {
    const std::optional<Given> given = find(name);
    std::string word = upper(given && !given->value.empty() ? given->value : fallback);
    if (word == "FALSE") word = "NO";  // YAML reads an unquoted no as false
    std::string known;
    for (size_t i = 0; i < choices.size(); ++i) {
      if (word == choices[i].word || word == std::to_string(i + 1)) {
        check(*choices[i].ours != 0, origin_of(name), ": ", name, " = ", choices[i].word,
              " is not supported");
        return choices[i].ours;
      }
      if (*choices[i].ours) known += str(known.empty() ? "" : ", ", choices[i].word);
    }
    fail(str(origin_of(name), ": ", name, " is \"", printable(given ? given->value : fallback),
             "\", must be one of ", known));
  }

  void read_strategy(int64_t version) {
    const std::optional<Given> reshards = find("fsdp_reshard_after_forward");
    const bool by_word = version == 1 && find("fsdp_sharding_strategy");
    if (by_word || !reshards) {
      if (!by_word && !has_defaults()) return;
      const std::string strategy = choice("fsdp_sharding_strategy", kStrategies, "FULL_SHARD");
      set("parallel.strategy", quoted(strategy), "fsdp_sharding_strategy");
      if (strategy == "hybrid") read_group_size();
      return;
    }
    // A switch in version 2; files of version 1 may use the words of the strategy here.
    const std::string word = upper(reshards->value);
    const bool is_switch = word == "TRUE" || word == "FALSE";
    set("parallel.strategy",
        quoted(is_switch ? (word == "TRUE" ? "full_shard" : "shard_grad_op")
                         : choice("fsdp_reshard_after_forward", kStrategies, "FULL_SHARD")),
        "fsdp_reshard_after_forward");
  }

  // accelerate shards within a machine.
  void read_group_size() {
    const int64_t machines = number("num_machines").value_or(1),
                  processes = number("num_processes").value_or(1);
    check(machines >= 1 && processes % machines == 0, origin_of("num_processes"),
          ": num_processes = ", processes, " is not a multiple of num_machines = ", machines);
    set("parallel.group_size", std::to_string(processes / machines), "fsdp_sharding_strategy");
  }

  void read_loading(int64_t version) {
    if (version == 2 || (!find("fsdp_sync_module_states") && !has_defaults())) return;
    const bool syncs = is_on("fsdp_sync_module_states"), loads = is_on("fsdp_cpu_ram_efficient_loading");
    if (loads && !syncs && find("fsdp_sync_module_states"))
      settings_.notices.push_back(str(origin_of("fsdp_sync_module_states"),
                                      ": fsdp_sync_module_states is switched on, as "
                                      "fsdp_cpu_ram_efficient_loading needs it"));
    set("parallel.sync_module_states", syncs || loads ? "true" : "false", "fsdp_sync_module_states");
  }

  void read_wrapping() {
    const std::optional<Given> classes = find("fsdp_transformer_layer_cls_to_wrap");
    const int64_t least = number("fsdp_min_num_params").value_or(0);
    if (!find("fsdp_auto_wrap_policy") && !has_defaults()) return;
    std::string wrap = choice("fsdp_auto_wrap_policy", kWraps, "NO_WRAP");
    if (wrap == "size" && least == 0) wrap = "none";  // accelerate does so too
    if (wrap == "block" && classes && !classes->value.empty()) {
      const WrappedClasses wrapped = wrapped_classes(classes->value, classes->origin);
      wrap = wrapped.wrap;
      if (!wrapped.unknown.empty())
        settings_.notices.push_back(str(classes->origin, ": ", wrapped.unknown,
                                        ": no model here has such a class, so it is not wrapped"));
    }
    set("parallel.wrap", flatshard::quoted(wrap),
        wrap == "attention_mlp" ? classes->name : "fsdp_auto_wrap_policy");
    if (wrap == "size") set("parallel.wrap_size", std::to_string(least), "fsdp_min_num_params");
  }

  std::map<std::string, Given> given_;
  std::string defaults_;
  std::set<std::string> read_;
  AccelerateSettings settings_;
};

// Other names of the same key.
std::string canonical(const std::string& name) {
  if (name == "fsdp_backward_prefetch_policy") return "fsdp_backward_prefetch";
  if (name == "fsdp_transformer_cls_to_wrap") return "fsdp_transformer_layer_cls_to_wrap";
  return name;
}

// Keys whose value may be a list.
const std::set<std::string> kLists{"fsdp_ignored_modules", "fsdp_transformer_cls_to_wrap",
                                   "fsdp_transformer_layer_cls_to_wrap", "gpu_ids", "tpu_env"};

// A section that is left empty is a scalar without a value.
void check_kind(const YamlEntry& entry, const std::string& name) {
  using Kind = YamlEntry::Kind;
  const bool is_section = entry.key.ends_with("_config");
  const char* const is = entry.kind == Kind::mapping ? " has members"
                         : entry.kind == Kind::list  ? " is a list"
                                                     : " is a single value";
  const bool fits = is_section
                        ? entry.kind == Kind::mapping || (entry.kind == Kind::scalar && entry.value.empty())
                    : entry.kind == Kind::list ? kLists.contains(entry.key)
                                               : entry.kind == Kind::scalar;
  check(
      fits, name, ':', entry.line, ": ", printable(entry.key), is,
      is_section ? ", must have members: indented lines of the form key: value" : ", must be a single value");
}

void add(std::map<std::string, Given>& given, const YamlEntry& entry, const std::string& name) {
  std::string value = entry.value;
  for (const std::string& item : entry.items) value += str(value.empty() ? "" : ",", item);
  const std::string key = canonical(entry.key);
  const bool is_new = given.emplace(key, Given{entry.key, value, str(name, ':', entry.line)}).second;
  check(is_new, name, ':', entry.line, ": ", entry.key, " is set twice");
}

}  // namespace

AccelerateSettings read_accelerate_config(const std::string& path) {
  const std::string name = printable(path);
  std::map<std::string, Given> given;
  const std::string text = read_whole_file(path, kMostFileBytes);
  for (const YamlEntry& entry : parse_yaml_mapping(text, name, YamlLists::of_mappings_too))
    check(!kOfTrainers.contains(entry.key), name, ':', entry.line, ": ", entry.key,
          " is a key of a trainer's config, not of accelerate: train --from ", name,
          " converts one of axolotl, torchtune or TRL");
  for (const YamlEntry& entry : parse_yaml_mapping(text, name)) {
    check_kind(entry, name);
    check(!entry.key.starts_with("fsdp_") || entry.key == "fsdp_config", name, ':', entry.line, ": ",
          printable(entry.key), " must be a member of fsdp_config");
    add(given, entry, name);
    if (entry.key != "fsdp_config") continue;
    for (const YamlEntry& member : entry.members) {
      check_kind(member, name);
      check(member.key.starts_with("fsdp_"), name, ':', member.line, ": unknown key ", printable(member.key),
            " in fsdp_config");
      add(given, member, name);
    }
  }
  Reader reader(std::move(given), name + " (accelerate's default)");
  reader.read_machine();
  reader.read_fsdp_if_used();
  reader.check_names({"fsdp_config"});
  return reader.take();
}

AccelerateSettings accelerate_environment() {
  static constexpr const char* kNames[] = {"activation_checkpointing",
                                           "auto_wrap_policy",
                                           "backward_prefetch",
                                           "cpu_ram_efficient_loading",
                                           "forward_prefetch",
                                           "ignored_modules",
                                           "min_num_params",
                                           "offload_params",
                                           "reshard_after_forward",
                                           "sharding_strategy",
                                           "state_dict_type",
                                           "sync_module_states",
                                           "transformer_cls_to_wrap",
                                           "use_orig_params",
                                           "version"};
  std::map<std::string, Given> given;
  for (const std::string name : kNames) {
    const std::string variable = "FSDP_" + upper(name);
    if (const char* const value = std::getenv(variable.c_str()))
      given.emplace(canonical("fsdp_" + name), Given{variable, value, "environment " + variable});
  }
  if (given.empty()) return {};
  Reader reader(std::move(given), "");
  reader.read_fsdp();
  return reader.take();
}

}  // namespace flatshard
