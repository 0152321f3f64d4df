#include "hub/expert_tensors.h"

#include <algorithm>
#include <utility>

#include "checkpoint/tensor_difference.h"
#include "hub/peft_names.h"
#include "model/lora.h"
#include "model/names.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr char kGateUp[] = "gate_up_proj", kDown[] = "down_proj";
constexpr char kInner[] = ".experts.base_layer.lora_", kOuter[] = ".experts.lora_";

bool selects(std::span<const std::string> parameters, const char* which) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [&](const std::string& parameter) { return parameter.ends_with(which); });
}

// "model.layers.3." of "model.layers.3.mlp.experts.lora_A.weight".
std::string block_of(const std::string& name, const ParamNames& names, const ModelConfig& config,
                     const std::string& where) {
  for (int64_t i = 0; i < config.layers; ++i)
    if (const std::string prefix = block_prefix(names, i); name.starts_with(prefix) && config.has_experts(i))
      return prefix;
  fail(str(where, ": the base has no such experts: check that the adapter was made for this base"));
}

// The pattern for layers of single experts that means the same as one for the parameter of all, which it
// still matches, for PEFT. The module around them may have another name here.
std::string pattern_for(const std::string& pattern, const std::string& parameter, const std::string& layers) {
  if (!pattern.ends_with(parameter)) return pattern;
  std::string before = pattern.substr(0, pattern.size() - parameter.size());
  for (const std::string end : {"experts\\.", "experts.", "mlp\\.", "mlp."})
    if (before.ends_with(end)) before.erase(before.size() - end.size());
  return before + R"(.*experts\.(\d+\.)" + layers + '|' + parameter + ')';
}

}  // namespace

bool is_of_all_experts(const std::string& name) {
  return name.find(kInner) != std::string::npos || name.find(kOuter) != std::string::npos;
}

std::vector<ExpertPart> expert_parts(const std::string& name, const SafetensorsEntry& entry,
                                     const ModelConfig& config, std::span<const std::string> parameters,
                                     const std::string& where) {
  const ParamNames& names = param_names(config.family);
  const std::string block = block_of(name, names, config, where);
  const bool is_a = name.ends_with("lora_A.weight"),
             gate_up = name.find(kInner) != std::string::npos || !selects(parameters, kDown);
  check(is_a || name.ends_with("lora_B.weight"), where, ": is neither lora_A nor lora_B");
  const int64_t E = config.experts, F = config.expert_ffn, C = config.hidden;
  const int64_t in = gate_up ? C : F, out = gate_up ? 2 * F : C;
  const std::vector<int64_t>& shape = entry.shape;
  const int64_t ranks = shape.size() == 2 ? shape[is_a ? 0 : 1] : 0, rank = ranks / E;
  check(rank >= 1 && rank <= kMostLoraRank && ranks % E == 0 && shape[is_a ? 1 : 0] == (is_a ? in : out),
        where, " is ", in_brackets(shape), ", must be ",
        is_a ? str("[", E, " r, ", in, "]") : str("[", out, ", r ", E, "]"), " for ", E,
        " experts of this base and a rank r");
  std::vector<ExpertPart> parts;
  const auto add = [&](const std::string& layer, int64_t e, int64_t rows, int64_t first_row) {
    const std::string path = block + of_expert(layer, e);
    parts.push_back({.parameter = path + (is_a ? ".lora_A.weight" : ".lora_B.weight"),
                     .is_a = is_a,
                     .layer = adapted_layer(names, path),
                     .experts = E,
                     .expert = e,
                     .rank = rank,
                     .rows = is_a ? rank : rows,
                     .columns = is_a ? in : rank,
                     .first_row = first_row});
  };
  for (int64_t e = 0; e < E; ++e) {
    if (!gate_up) {
      add(names.expert_down, e, C, 0);
      continue;
    }
    if (names.interleaved_experts()) {
      add(names.expert_gate_up, e, 2 * F, 0);
      continue;
    }
    add(names.expert_gate, e, F, 0);
    add(names.expert_up, e, F, F);
  }
  return parts;
}

void read_part(const ExpertPart& part, std::span<const float> whole, int64_t first, int64_t count,
               float* to) {
  if (part.is_a) {
    std::copy_n(whole.begin() + part.expert * part.rows * part.columns + first, count, to);
    return;
  }
  const int64_t width = part.rank * part.experts;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = (first + i) / part.columns, j = (first + i) % part.columns;
    to[i] = whole[static_cast<size_t>((part.first_row + row) * width + j * part.experts + part.expert)];
  }
}

void select_experts(LoraConfig& lora, std::span<const std::string> parameters, const std::string& family) {
  const ParamNames& names = param_names(family);
  const std::string gate = last_component(names.expert_gate), up = last_component(names.expert_up),
                    down = last_component(names.expert_down);
  for (const std::string& parameter : parameters)
    check(parameter.ends_with(kGateUp) || parameter.ends_with(kDown), "target_parameters: \"", parameter,
          "\" is not supported, only those of experts are: ", kGateUp, " and ", kDown);
  auto* const targets = std::get_if<std::vector<std::string>>(&lora.targets);
  if (names.joins_experts) {
    if (targets) targets->insert(targets->end(), parameters.begin(), parameters.end());
    return;
  }
  if (targets) {
    if (selects(parameters, kGateUp)) targets->insert(targets->end(), {gate, up});
    if (selects(parameters, kDown)) targets->push_back(down);
  }
  for (auto* const patterns : {&lora.rank_pattern, &lora.alpha_pattern}) {
    std::map<std::string, double> changed;
    for (const auto& [pattern, value] : *patterns)
      changed[pattern_for(pattern_for(pattern, kGateUp, "(" + gate + "|" + up + ")"), kDown, down)] = value;
    *patterns = std::move(changed);
  }
}

}  // namespace flatshard
