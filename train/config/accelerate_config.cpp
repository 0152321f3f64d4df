#include "train/config/accelerate_config.h"

#include <array>
#include <cctype>
#include <cstdlib>
#include <set>

#include "runtime/check.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/config/foreign_import.h"
#include "train/config/yaml_mapping.h"

namespace flatshard {
namespace {

// The keys of a file; those of its fsdp_config, which variables of the environment set, too; and their other
// names.
constexpr char kOfMachine[] =
    "compute_environment debug distributed_type downcast_bf16 dynamo_config enable_cpu_affinity fsdp_config "
    "gpu_ids machine_rank main_process_ip main_process_port main_training_function mixed_precision "
    "mpirun_config num_machines num_processes parallelism_config rdzv_backend same_network tpu_env "
    "tpu_use_cluster tpu_use_sudo use_cpu";
constexpr char kOfFsdp[] =
    "fsdp_activation_checkpointing fsdp_auto_wrap_policy fsdp_backward_prefetch "
    "fsdp_cpu_ram_efficient_loading fsdp_forward_prefetch fsdp_ignored_modules fsdp_min_num_params "
    "fsdp_offload_params fsdp_reshard_after_forward fsdp_sharding_strategy fsdp_state_dict_type "
    "fsdp_sync_module_states fsdp_transformer_cls_to_wrap fsdp_use_orig_params fsdp_version";
constexpr char kAliases[] = "fsdp_backward_prefetch_policy fsdp_transformer_layer_cls_to_wrap";
constexpr char kLists[] = "fsdp_ignored_modules fsdp_transformer* gpu_ids tpu_env";
// Keys without an effect here that users may count on, unless they are switched off.
constexpr char kNoticed[] = "debug enable_cpu_affinity fsdp_state_dict_type fsdp_use_orig_params";

// What accelerate assumes for keys that a file omits, from one version of FSDP to another; 0: without FSDP.
struct Default {
  const char *key, *toml;
  int first_version, last_version;
};
constexpr Default kDefaults[] = {
    {"parallel.backward_prefetch", "\"none\"", 1, 1}, {"parallel.cpu_ram_efficient_loading", "false", 1, 2},
    {"parallel.forward_prefetch", "false", 1, 2},     {"parallel.offload", "false", 1, 2},
    {"parallel.strategy", "\"full_shard\"", 1, 2},    {"parallel.strategy", "\"no_shard\"", 0, 0},
    {"parallel.sync_module_states", "false", 1, 1},   {"parallel.wrap", "\"none\"", 1, 2},
    {"precision.compute", "\"fp32\"", 0, 2},          {"train.recompute", "false", 1, 2}};

constexpr std::array kClassFamilies{"GPT2",    "Gemma2", "Gemma3", "Glm4",  "Granite", "Llama",
                                    "Mistral", "Olmo2",  "Phi3",   "Qwen2", "Qwen3",   "SmolLM3"};

enum class ClassKind { block, attention, mlp, unknown };

// Older versions of transformers have a class for each implementation of attention.
ClassKind kind_of(const std::string& name) {
  for (const std::string family : kClassFamilies) {
    if (!name.starts_with(family)) continue;
    const std::string part = name.substr(family.size());
    if (part == "DecoderLayer" || part == "Block") return ClassKind::block;
    if (part == "Attention" || part == "FlashAttention2" || part == "SdpaAttention")
      return ClassKind::attention;
    if (part == "MLP") return ClassKind::mlp;
  }
  return ClassKind::unknown;
}

// The classes of transformers that fsdp_transformer_layer_cls_to_wrap names, as a value of parallel.wrap.
struct WrappedClasses {
  std::string wrap;     // block or attention_mlp
  std::string unknown;  // the names that no model here has, separated by commas
};

// `names` are separated by commas and may repeat. An Error that begins with `where` unless they name the
// blocks of a model, or its attention and its MLP.
WrappedClasses wrapped_classes(const std::string& names, const std::string& where) {
  WrappedClasses result;
  std::set<std::string> seen;
  std::set<ClassKind> kinds;
  for (std::string name : split(names, ',')) {
    std::erase(name, ' ');
    if (name.empty() || !seen.insert(name).second) continue;
    const ClassKind kind = kind_of(name);
    if (kind == ClassKind::unknown)
      result.unknown += str(result.unknown.empty() ? "" : ", ", printable(name));
    else
      kinds.insert(kind);
  }
  const bool halves = kinds.contains(ClassKind::attention) && kinds.contains(ClassKind::mlp);
  check(kinds.contains(ClassKind::block) || halves, where, ": ", printable(names),
        ": must name a decoder layer such as LlamaDecoderLayer, or attention and MLP such as "
        "LlamaAttention,LlamaMLP; or set parallel.wrap");
  result.wrap = kinds.contains(ClassKind::block) ? "block" : "attention_mlp";
  return result;
}

class Accelerate : public ForeignImport {
 public:
  // `defaults`: the source to cite for keys that are not given; "" if they are left alone.
  Accelerate(std::vector<Given> given, const std::string& defaults) : ForeignImport(std::move(given), false) {
    const bool is_fsdp = defaults.empty() || word_of("distributed_type") == "fsdp";
    const int64_t version = is_fsdp ? number("fsdp_version").value_or(1) : 0;
    select(version);
    for (const Given& g : given_) translate(g);
    for (const Default& d : kDefaults)
      if (!defaults.empty() && version >= d.first_version && version <= d.last_version)
        set_if_missing(d.key, d.toml, defaults);
    set_processes(is_fsdp);
    set_group_size();
    set_loading();
    set_wrapping();
  }

  AccelerateSettings settings() {
    problems_.raise();
    for (const auto& [key, setting] : set_) settings_.presets.push_back({key, setting.toml, setting.origin});
    for (const auto& [g, reason] : left_)
      if (is_among(g.name(), kNoticed) && !g.is_empty() && flag_in(g.value) != false)
        notice(g, " is ignored: " + reason);
    return settings_;
  }

 private:
  void notice(const Given& g, const std::string& text) {
    settings_.notices.push_back(str(g.origin, ": ", printable(g.path), text));
  }
  std::string word_of(const char* name) const {
    const Given* const given = find(name);
    return given == nullptr ? "" : lower(given->value);
  }
  std::optional<int64_t> number(const char* name) {
    const std::string word = word_of(name);
    const bool is_whole = word.size() <= 15 && word.find_first_not_of("0123456789") == word.npos;
    if (!is_whole) refuse(*find(name), "must be a whole number");
    return is_whole && !word.empty() ? std::optional(std::stoll(word)) : std::nullopt;
  }
  void ignore(const char* names, const char* why) {
    for (const Given& g : given_)
      if (*why && is_among(g.name(), names)) notice(g, str(" is ignored: ", why));
    std::erase_if(given_, [&](const Given& g) { return is_among(g.name(), names); });
  }

  // Keeps the keys that count in this version of FSDP.
  void select(int64_t version) {
    if (version == 0) {
      ignore("fsdp_config", "it has an effect with distributed_type FSDP only");
      return ignore("fsdp_*", "");
    }
    ignore("distributed_type", "");
    if (version == 1 && find("fsdp_sharding_strategy")) ignore("fsdp_reshard_after_forward", "");
    if (version != 2) return;
    ignore("fsdp_backward_prefetch* fsdp_sync_module_states fsdp_use_orig_params",
           "it has no meaning in FSDP version 2");
    if (find("fsdp_reshard_after_forward"))
      ignore("fsdp_sharding_strategy", "fsdp_reshard_after_forward decides");
    if (flag_in(word_of("fsdp_forward_prefetch")) == true)
      refuse(*find("fsdp_forward_prefetch"), "does not exist in FSDP version 2: remove it");
  }

  void set_processes(bool is_fsdp) {
    const std::optional<int64_t> n = number("num_processes");
    if (!n) return;
    settings_.processes = static_cast<int>(*n);
    if (*n < 1 || *n > INT32_MAX)
      refuse(*find("num_processes"), str("must be from 1 to ", INT32_MAX));
    else if (*n > 1 && !is_fsdp && !is_among(word_of("distributed_type"), "multi_gpu multi_cpu"))
      refuse(*find("num_processes"), "distributed_type NO is one process");
  }

  // accelerate shards within a machine.
  void set_group_size() {
    if (value_of("parallel.strategy") != "\"hybrid\"") return;
    const int64_t machines = number("num_machines").value_or(1), ranks = settings_.processes.value_or(1);
    if (machines < 1 || ranks % machines != 0)
      refuse(*find("num_machines"), str("does not divide num_processes = ", ranks));
    else
      set_["parallel.group_size"] = {str(ranks / machines), set_.at("parallel.strategy").origin};
  }

  void set_loading() {
    const bool loads = value_of("parallel.cpu_ram_efficient_loading") == "true";
    if (!loads || value_of("parallel.sync_module_states") != "false") return;
    set_.at("parallel.sync_module_states").toml = "true";
    if (const Given* const syncs = find("fsdp_sync_module_states"))
      notice(*syncs, " is switched on, as fsdp_cpu_ram_efficient_loading needs it");
  }

  void set_wrapping() {
    const std::string wrap = value_of("parallel.wrap");
    const bool has_size = number("fsdp_min_num_params").value_or(0) > 0;
    if (wrap == "\"size\"" && !has_size)
      set_.at("parallel.wrap").toml = "\"none\"";  // accelerate does so too
    if (wrap != "\"size\"" || !has_size) set_.erase("parallel.wrap_size");
    const Given *classes = find("fsdp_transformer_cls_to_wrap"),
                *other = find("fsdp_transformer_layer_cls_to_wrap");
    if (classes == nullptr) classes = other;
    if (wrap != "\"block\"" || classes == nullptr || classes->is_empty()) return;
    problems_.attempt([&] {
      const WrappedClasses wrapped = wrapped_classes(classes->value, classes->origin);
      if (wrapped.wrap != "block") set_.at("parallel.wrap") = {quoted(wrapped.wrap), classes->origin};
      if (!wrapped.unknown.empty())
        settings_.notices.push_back(str(classes->origin, ": ", wrapped.unknown,
                                        ": no model here has such a class, so it is not wrapped"));
    });
  }

  AccelerateSettings settings_;
};

// A section that is left empty is a scalar without a value.
void check_entry(const YamlEntry& entry, const std::string& origin, bool in_fsdp) {
  using Kind = YamlEntry::Kind;
  const std::string key = printable(entry.key);
  const bool is_section = key.ends_with("_config"), is_scalar = entry.kind == Kind::scalar;
  const char* const is = entry.kind == Kind::mapping ? " has members"
                         : is_scalar                 ? " is a single value"
                                                     : " is a list";
  if (is_section)
    check(entry.kind == Kind::mapping || (is_scalar && entry.value.empty()), origin, ": ", key, is,
          ", must have members: indented lines of the form key: value");
  else
    check(is_scalar || (entry.kind == Kind::list && is_among(key, kLists)), origin, ": ", key, is,
          ", must be a single value");
  const bool is_of_fsdp = is_among(key, kOfFsdp) || is_among(key, kAliases);
  check(in_fsdp || !is_of_fsdp, origin, ": ", key, " must be a member of fsdp_config");
  check(in_fsdp ? is_of_fsdp : is_among(key, kOfMachine), origin, ": unknown key ", key,
        in_fsdp ? " in fsdp_config" : "", "; accelerate has none of this name");
}

void add(std::vector<Given>& all, const std::vector<YamlEntry>& entries, const std::string& file,
         bool in_fsdp) {
  for (const YamlEntry& entry : entries) {
    const std::string origin = str(file, ':', entry.line);
    check_entry(entry, origin, in_fsdp);
    for (const Given& other : all)
      check(!in_fsdp || foreign_key(other.path) != foreign_key(entry.key), origin, ": ", entry.key,
            " is set twice");
    std::string value = entry.members.empty() || entry.key == "fsdp_config" ? entry.value : "{...}";
    for (const std::string& item : entry.items) value += (value.empty() ? "" : ",") + item;
    all.push_back({.path = entry.key, .value = value, .origin = origin});
    if (entry.key == "fsdp_config") add(all, entry.members, file, true);
  }
}

}  // namespace

AccelerateSettings read_accelerate_config(const std::string& path) {
  const std::string name = printable(path), text = read_whole_file(path, kMostForeignBytes);
  for (const YamlEntry& entry : parse_yaml_mapping(text, name, YamlLists::of_mappings_too))
    check(!foreign_key(entry.key) || is_among(entry.key, kOfMachine) || is_among(entry.key, "fsdp_*"), name,
          ':', entry.line, ": ", printable(entry.key),
          " is a key of a trainer's config, not of accelerate: train --from ", name,
          " converts one of axolotl, torchtune or TRL");
  std::vector<Given> given;
  add(given, parse_yaml_mapping(text, name), name, false);
  return Accelerate(std::move(given), name + " (accelerate's default)").settings();
}

AccelerateSettings accelerate_environment() {
  std::vector<Given> given;
  for (std::string variable : split(kOfFsdp, ' ')) {
    for (char& c : variable) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (const char* const value = std::getenv(variable.c_str()))
      given.push_back({.path = variable, .value = value, .origin = "environment " + variable});
  }
  return Accelerate(std::move(given), "").settings();
}

}  // namespace flatshard
