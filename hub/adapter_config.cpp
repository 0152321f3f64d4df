#include "hub/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "hub/expert_tensors.h"
#include "hub/peft_names.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/json_reader.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

using nlohmann::json;

constexpr int64_t kMostBytes = int64_t{16} << 20;
constexpr double kMostAlpha = 1e9;

// Keys that are copied to written files, with their defaults.
const std::map<std::string, json>& kept_keys() {
  static const std::map<std::string, json> keys{{"auto_mapping", nullptr},
                                                {"loftq_config", json::object()},
                                                {"megatron_config", nullptr},
                                                {"megatron_core", "megatron.core"}};
  return keys;
}

// Keys that must have their defaults: they change the result of an adapter.
const std::map<std::string, json>& refused_keys() {
  static const std::map<std::string, json> keys{{"alora_invocation_tokens", nullptr},
                                                {"arrow_config", nullptr},
                                                {"bias", "none"},
                                                {"corda_config", nullptr},
                                                {"ensure_weight_tying", false},
                                                {"eva_config", nullptr},
                                                {"kasa_config", nullptr},
                                                {"layer_replication", nullptr},
                                                {"lora_bias", false},
                                                {"lora_ga_config", nullptr},
                                                {"monteclora_config", nullptr},
                                                {"peft_type", "LORA"},
                                                {"qalora_group_size", 16},
                                                {"task_type", "CAUSAL_LM"},
                                                {"trainable_token_indices", nullptr},
                                                {"use_bdlora", nullptr},
                                                {"use_dora", false},
                                                {"use_qalora", false},
                                                {"velora_config", nullptr}};
  return keys;
}

// Keys that read_adapter_config reads or ignores.
const std::set<std::string>& other_keys() {
  static const std::set<std::string> keys{"alpha_pattern",
                                          "base_model_name_or_path",
                                          "exclude_modules",
                                          "fan_in_fan_out",
                                          "inference_mode",
                                          "init_lora_weights",
                                          "layers_pattern",
                                          "layers_to_transform",
                                          "lora_alpha",
                                          "lora_dropout",
                                          "modules_to_save",
                                          "peft_version",
                                          "r",
                                          "rank_pattern",
                                          "revision",
                                          "target_modules",
                                          "target_parameters",
                                          "use_rslora"};
  return keys;
}

ModulePatterns patterns(const JsonReader& in, const std::string& key) {
  if (in.has(key) && in.value(key).is_string()) return in.text(key);
  return in.texts(key);
}

// The number that is a member `key`, or a member of its object.
double number_of(const json& value, const std::string& place, double least, double most) {
  const double number = value.is_number() ? value.get<double>() : NAN;
  check(number >= least && number <= most, place, " is ", short_json_text(value), ", must be from ", least,
        " to ", most);
  return number;
}
double number(const JsonReader& in, const std::string& key, double absent, double least, double most) {
  return in.has(key) ? number_of(in.value(key), in.where(key), least, most) : absent;
}
std::map<std::string, double> exceptions(const JsonReader& in, const std::string& key, double least,
                                         double most) {
  std::map<std::string, double> found;
  if (!in.has(key)) return found;
  in.must(in.value(key).is_object(), key, "an object");
  for (const auto& [pattern, number] : in.value(key).items())
    found[pattern] = number_of(number, str(in.where(key), ": \"", pattern, '"'), least, most);
  return found;
}

std::vector<int64_t> layers(const JsonReader& in, const std::string& key) {
  if (!in.has(key)) return {};
  const json& value = in.value(key);
  const json all = value.is_array() ? value : json::array({value});
  const auto is_layer = [](const json& layer) { return layer.is_number_unsigned() && layer <= INT32_MAX; };
  in.must(std::all_of(all.begin(), all.end(), is_layer), key, "an index of a block, or a list of them");
  return all.get<std::vector<int64_t>>();
}

void check_keys(const JsonReader& in, std::vector<std::string>& warnings) {
  for (const auto& [key, usual] : refused_keys()) {
    if (!in.has(key) || in.value(key) == usual) continue;
    in.must(false, key,
            usual.is_null() ? "null: this is not supported"
                            : str(json_text(usual), ": nothing else is supported"));
  }
  in.must(in.has("peft_type"), "peft_type", "\"LORA\"");
  for (const auto& [key, value] : in.members().items())
    if (!kept_keys().contains(key) && !refused_keys().contains(key) && !other_keys().contains(key))
      warnings.push_back(str(in.where(), ": the key \"", printable(key), "\" is unknown and ignored"));
}

LoraInit read_init(const JsonReader& in) {
  constexpr const char* kKey = "init_lora_weights";
  if (!in.has(kKey)) return LoraInit::kaiming;
  const json& init = in.value(kKey);
  in.must(init.is_boolean() || init == "gaussian", kKey,
          "true, false or \"gaussian\": other methods change the base");
  return init == "gaussian" ? LoraInit::gaussian : LoraInit::kaiming;
}

struct WrittenTargets {
  json targets;
  json parameters = nullptr;
  bool with_layers = true;
};

// PEFT rejects layers together with a string of targets. PEFT writes "all-linear" as a list, and other
// readers of its files know only the list. Layers of experts are parameters of PEFT's module of all experts;
// since `layers` selects none of them, and they may have the names of other layers, all are listed by path.
WrittenTargets targets_to_write(const LoraConfig& lora, const Adapters& adapters, const std::string& family) {
  WrittenTargets listed{.targets = json::array(), .with_layers = false};
  for (const auto& [path, adapter] : adapters)
    (is_of_experts(path) ? listed.parameters : listed.targets).push_back(peft_name(family, path));
  const auto choice = [&](const auto& words) {
    const bool ambiguous = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return names_single_experts(word, family);
    });
    return ambiguous ? listed : WrittenTargets{words};
  };
  if (has_peft_prefixes(family) || !listed.parameters.is_null()) return listed;
  if (const auto* list = std::get_if<std::vector<std::string>>(&lora.targets)) return choice(*list);
  if (is_all_linear(lora.targets)) {
    std::set<std::string> ends;
    for (const auto& [path, adapter] : adapters) ends.insert(last_component(path));
    return choice(ends);
  }
  if (lora.layers.empty()) return {std::get<std::string>(lora.targets)};
  return listed;
}

json number_to_write(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  return value;
}

json exceptions_to_write(const std::map<std::string, double>& exceptions, const std::string& family) {
  json all = json::object();
  for (const auto& [pattern, value] : exceptions) all[peft_name(family, pattern)] = number_to_write(value);
  return all;
}

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

template <class T>
json list_or_null(const std::vector<T>& list) {
  return list.empty() ? json(nullptr) : json(list);
}

}  // namespace

AdapterConfig read_adapter_config(const std::string& path, std::vector<std::string>& warnings) {
  const JsonReader in(path, checked_json<json>(read_whole_file(path, kMostBytes), path));
  check_keys(in, warnings);
  const double rank = number(in, "r", 8, 1, kMostLoraRank);
  in.must(rank == std::floor(rank), "r", "a whole number");
  AdapterConfig config{.lora = {.rank = static_cast<int64_t>(rank),
                                .alpha = number(in, "lora_alpha", 8, 0, kMostAlpha),
                                .dropout = number(in, "lora_dropout", 0, 0, 1),
                                .targets = patterns(in, "target_modules"),
                                .exclude = patterns(in, "exclude_modules"),
                                .layers = layers(in, "layers_to_transform"),
                                .rank_pattern = exceptions(in, "rank_pattern", 1, kMostLoraRank),
                                .alpha_pattern = exceptions(in, "alpha_pattern", 0, kMostAlpha),
                                .rslora = in.flag("use_rslora", false),
                                .init = read_init(in),
                                .save_modules = in.texts("modules_to_save")},
                       .base = in.text("base_model_name_or_path", ""),
                       .revision = in.text("revision", ""),
                       .fan_in_fan_out = in.flag("fan_in_fan_out", false),
                       .parameters = in.texts("target_parameters"),
                       .layers_pattern = {},
                       .kept = {}};
  in.must(config.lora.dropout < 1, "lora_dropout", "less than 1");
  if (in.has("layers_pattern") && in.value("layers_pattern").is_string())
    config.layers_pattern = {in.text("layers_pattern")};
  else
    config.layers_pattern = in.texts("layers_pattern");
  for (const auto& [key, usual] : kept_keys())
    if (in.members().contains(key) && in.value(key) != usual) config.kept[key] = json_text(in.value(key));
  return config;
}

std::string adapter_config_json(const AdapterConfig& config, const Adapters& adapters,
                                const std::string& family) {
  const LoraConfig& lora = config.lora;
  const WrittenTargets written = targets_to_write(lora, adapters, family);
  std::vector<std::string> modules_to_save = lora.save_modules;
  for (std::string& module : modules_to_save) module = peft_name(family, module);
  json out{{"alpha_pattern", exceptions_to_write(lora.alpha_pattern, family)},
           {"base_model_name_or_path", text_or_null(config.base)},
           {"bias", name_of(lora.bias)},
           {"fan_in_fan_out", config.fan_in_fan_out},
           {"inference_mode", true},
           {"init_lora_weights", lora.init == LoraInit::gaussian ? json("gaussian") : json(true)},
           {"layer_replication", nullptr},
           {"layers_pattern", written.with_layers ? list_or_null(config.layers_pattern) : json(nullptr)},
           {"layers_to_transform", written.with_layers ? list_or_null(lora.layers) : json(nullptr)},
           {"lora_alpha", number_to_write(lora.alpha)},
           {"lora_dropout", lora.dropout},
           {"modules_to_save", list_or_null(modules_to_save)},
           {"peft_type", "LORA"},
           {"r", lora.rank},
           {"rank_pattern", exceptions_to_write(lora.rank_pattern, family)},
           {"revision", text_or_null(config.revision)},
           {"target_modules", written.targets},
           {"task_type", "CAUSAL_LM"},
           {"use_dora", false},
           {"use_rslora", lora.rslora}};
  for (const auto& [key, usual] : kept_keys()) {
    const auto found = config.kept.find(key);
    out[key] = found == config.kept.end() ? usual : parse_json<json>(found->second);
  }
  // Not every version of PEFT reads these keys, so they are written only if they have a value.
  if (!written.parameters.is_null()) out["target_parameters"] = written.parameters;
  const auto* excluded = std::get_if<std::vector<std::string>>(&lora.exclude);
  if (excluded ? !excluded->empty() : !std::get<std::string>(lora.exclude).empty())
    out["exclude_modules"] = excluded ? json(*excluded) : json(std::get<std::string>(lora.exclude));
  return json_text(out, 2) + '\n';
}

}  // namespace flatshard
