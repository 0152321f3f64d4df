#include "model/lora.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <regex>
#include <set>

#include "model/model.h"
#include "model/names.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

std::regex regular_expression(const char* key, const std::string& pattern) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& error) {
    fail(str(key, ": \"", pattern, "\" is not a regular expression: ", error.what()));
  }
}

// A test of paths that records which of its entries matched.
class ModuleFilter {
 public:
  ModuleFilter(const char* key, const ModulePatterns& patterns) : key_(key) {
    if (const auto* regex = std::get_if<std::string>(&patterns)) {
      if (regex->empty()) return;
      regex_ = regular_expression(key, *regex);
      entries_ = {*regex};
    } else {
      entries_ = std::get<std::vector<std::string>>(patterns);
    }
    used_.resize(entries_.size());
  }

  bool matches(const std::string& path) {
    bool any = false;
    for (size_t i = 0; i < entries_.size(); ++i)
      if (regex_ ? std::regex_match(path, *regex_) : names_module(entries_[i], path)) any = used_[i] = true;
    return any;
  }
  // Returns whether an entry of the list is exactly this path.
  bool names(const std::string& path) const {
    return !regex_ && std::find(entries_.begin(), entries_.end(), path) != entries_.end();
  }
  void list_unused(std::vector<std::string>& warnings) const {
    for (size_t i = 0; i < entries_.size(); ++i)
      if (!used_[i]) warnings.push_back(str(key_, ": \"", entries_[i], "\" matches no module"));
  }

 private:
  const char* key_;
  std::optional<std::regex> regex_;
  std::vector<std::string> entries_;
  std::vector<bool> used_;
};

// Finds the value of the first pattern that matches the end of a path.
class Exceptions {
 public:
  Exceptions(const char* key, const std::map<std::string, double>& patterns) : key_(key) {
    for (const auto& [pattern, value] : patterns)
      entries_.push_back({pattern, regular_expression(key, "(.*\\.)?(" + pattern + ")"), value});
  }

  double value(const std::string& path, double usual) {
    for (Entry& entry : entries_)
      if (std::regex_match(path, entry.regex)) {
        entry.used = true;
        return entry.value;
      }
    return usual;
  }
  void list_unused(std::vector<std::string>& warnings) const {
    for (const Entry& entry : entries_)
      if (!entry.used) warnings.push_back(str(key_, ": \"", entry.pattern, "\" matches no adapter"));
  }

 private:
  struct Entry {
    std::string pattern;
    std::regex regex;
    double value;
    bool used = false;
  };
  const char* key_;
  std::vector<Entry> entries_;
};

// The index of a path's block: its first component that is a number.
std::optional<int64_t> block_of(const std::string& path) {
  static const std::regex number("(?:^|\\.)(\\d{1,9})(?:\\.|$)");
  std::smatch found;
  if (!std::regex_search(path, found, number)) return {};
  return std::stoll(found[1]);
}

bool in_chosen_block(const LoraConfig& lora, const std::string& path) {
  if (lora.layers.empty()) return true;
  const std::optional<int64_t> block = block_of(path);
  return block && std::find(lora.layers.begin(), lora.layers.end(), *block) != lora.layers.end();
}

// Leaf modules and the modules that contain them. For adapters, a layer of all experts is one.
std::vector<std::string> all_modules(const Model& model) {
  std::vector<std::string> paths;
  std::set<std::string> seen;
  for (const std::string& module : leaf_modules(model)) {
    const std::string leaf = adapted_layer(module);
    for (size_t end = 0; end != std::string::npos;) {
      end = leaf.find('.', end + 1);
      if (const std::string path = leaf.substr(0, end); seen.insert(path).second) paths.push_back(path);
    }
  }
  return paths;
}

// Targets that name gate, up or down of single experts, in the words of older configs.
void list_layers_of_one(const ModulePatterns& targets, const ParamNames& names,
                        std::vector<std::string>& warnings) {
  const auto* const list = std::get_if<std::vector<std::string>>(&targets);
  if (!list) return;
  for (const std::string& target : *list)
    for (const std::string* name : {&names.expert_gate, &names.expert_up, &names.expert_down}) {
      if (name->empty()) continue;
      const std::string of_one = of_expert(*name, 0), of_all = adapted_layer(of_one);
      if (names_module(target, of_one) && !names_module(target, of_all))
        warnings.push_back(str("lora.targets: \"", target, "\" names no layer of experts, whose layer is ",
                               of_all.substr(of_all.rfind('.') + 1)));
    }
}

bool is_router(const Model& model, const std::string& path) {
  return model.config().experts > 0 && path.ends_with('.' + param_names(model.config().family).router);
}

std::string module_of(const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); }

}  // namespace

double lora_scale(double alpha, int64_t rank, bool rslora) {
  return alpha / (rslora ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
}

bool is_all_linear(const ModulePatterns& targets) {
  const auto* text = std::get_if<std::string>(&targets);
  if (!text) return false;
  std::string lower = *text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower == "all-linear";
}

bool names_module(const std::string& entry, const std::string& path) {
  return path == entry || path.ends_with("." + entry);
}

bool is_inside(const std::string& path, const std::vector<std::string>& entries) {
  return std::any_of(entries.begin(), entries.end(), [&](const std::string& entry) {
    return str('.', path, '.').find(str('.', entry, '.')) != std::string::npos;
  });
}

bool is_of_experts(const std::string& path) { return is_inside(path, {"experts"}); }

std::vector<std::string> linear_layers(const Model& model) {
  std::vector<std::string> paths;
  for (const ParamList& list : model.param_lists())
    for (const ParamSpec& spec : list.specs())
      if (const std::string path = module_of(spec.name);
          spec.role == ParamRole::weight && !is_router(model, path))
        paths.push_back(path);
  return paths;
}

std::vector<std::string> leaf_modules(const Model& model) {
  std::vector<std::string> paths;
  for (const ParamList& list : model.param_lists())
    for (const ParamSpec& spec : list.specs())
      if (spec.role != ParamRole::adapter && spec.role != ParamRole::quantized &&
          (paths.empty() || paths.back() != module_of(spec.name)))
        paths.push_back(module_of(spec.name));
  return paths;
}

AdapterChoice adapters_of(const LoraConfig& lora, const std::vector<std::string>& paths) {
  Exceptions ranks("lora.rank_pattern", lora.rank_pattern), alphas("lora.alpha_pattern", lora.alpha_pattern);
  AdapterChoice choice;
  for (const std::string& path : paths) {
    const double rank = ranks.value(path, static_cast<double>(lora.rank)),
                 alpha = alphas.value(path, lora.alpha);
    check(rank >= 1 && rank <= kMostLoraRank && rank == std::floor(rank), "lora.rank_pattern: the rank of ",
          path, " is ", rank, ", must be a whole number from 1 to ", kMostLoraRank);
    const int64_t whole = static_cast<int64_t>(rank);
    choice.adapters[path] = {.rank = whole,
                             .scale = static_cast<float>(lora_scale(alpha, whole, lora.rslora)),
                             .dropout = static_cast<float>(lora.dropout),
                             .gaussian = lora.init == LoraInit::gaussian};
  }
  ranks.list_unused(choice.warnings);
  alphas.list_unused(choice.warnings);
  return choice;
}

AdapterChoice choose_adapters(const LoraConfig& lora, const Model& model) {
  const bool all_linear = is_all_linear(lora.targets);
  ModuleFilter targets("lora.targets", all_linear ? ModulePatterns(".*") : lora.targets),
      exclude("lora.exclude", lora.exclude);
  std::vector<std::string> linear = linear_layers(model), chosen;
  for (std::string& path : linear) path = adapted_layer(path);
  for (const std::string& path : all_modules(model)) {
    const bool is_linear = std::find(linear.begin(), linear.end(), path) != linear.end();
    const bool is_head = path == param_names(model.config().family).head;
    if (all_linear && (!is_linear || is_head || is_of_experts(path))) continue;
    const bool excluded = exclude.matches(path) || is_inside(path, lora.save_modules);
    if (!targets.matches(path) || excluded) continue;
    if (!targets.names(path) && !in_chosen_block(lora, path)) continue;
    check(is_linear, "lora.targets: ", path,
          " cannot have an adapter, only linear layers can: to train it in full, name it in "
          "lora.save_modules");
    chosen.push_back(path);
  }
  check(!chosen.empty(), "lora.targets matches no linear layer; paths look like ",
        linear.empty() ? "" : linear.front(),
        ": a list names paths or their ends, a string is a regular expression for whole paths");
  AdapterChoice choice = adapters_of(lora, chosen);
  std::vector<std::string> warnings;
  if (!all_linear) targets.list_unused(warnings);
  list_layers_of_one(lora.targets, param_names(model.config().family), warnings);
  exclude.list_unused(warnings);
  choice.warnings.insert(choice.warnings.begin(), warnings.begin(), warnings.end());
  return choice;
}

}  // namespace flatshard
