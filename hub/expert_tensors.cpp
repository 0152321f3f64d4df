#include "hub/expert_tensors.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "checkpoint/float_values.h"
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
                     .layer = adapted_layer(path),
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

std::vector<float> joined_values(const SafetensorsEntry& of_all, int64_t experts,
                                 std::span<const SingleExpert> singles) {
  const bool is_a = of_all.name.ends_with("lora_A.weight");
  const int64_t width = of_all.shape[1], rank = (is_a ? of_all.shape[0] : width) / experts;
  std::vector<float> all(static_cast<size_t>(of_all.shape[0] * width)), values;
  for (const SingleExpert& single : singles) {
    values.resize(static_cast<size_t>(element_count(*single.entry)));
    read_floats(*single.entry, 0, std::ssize(values), values.data());
    if (is_a) {
      const int64_t row = single.expert * rank + single.first_rank;
      std::copy(values.begin(), values.end(), all.begin() + row * width);
      continue;
    }
    const int64_t columns = single.entry->shape[1];
    for (int64_t i = 0; i < std::ssize(values); ++i) {
      const int64_t row = single.first_row + i / columns, j = single.first_rank + i % columns;
      all[static_cast<size_t>(row * width + j * experts + single.expert)] = values[static_cast<size_t>(i)];
    }
  }
  return all;
}

void select_experts(LoraConfig& lora, std::span<const std::string> parameters, const std::string& family) {
  const ParamNames& names = param_names(family);
  for (const std::string& parameter : parameters)
    check(parameter.ends_with(kGateUp) || parameter.ends_with(kDown), "target_parameters: \"", parameter,
          "\" is not supported, only those of experts are: ", kGateUp, " and ", kDown);
  if (names.expert_down.empty()) return;
  auto* const targets = std::get_if<std::vector<std::string>>(&lora.targets);
  if (!targets) return;
  for (const std::string& parameter : parameters) targets->push_back(name_in_files(family, parameter));
  const auto has = [&](const std::string& layer) {
    return !layer.empty() &&
           std::find(targets->begin(), targets->end(), last_component(layer)) != targets->end();
  };
  if (!parameters.empty()) return;
  const bool gate_up = has(names.expert_gate) && has(names.expert_up), down = has(names.expert_down);
  if (gate_up) {
    const std::string pattern = std::string(R"(.*experts\.)") + kGateUp;
    targets->push_back(std::string("experts.") + kGateUp);
    lora.rank_pattern[pattern] = 2 * static_cast<double>(lora.rank);
    lora.alpha_pattern[pattern] = lora.alpha * (lora.rslora ? std::sqrt(2.0) : 2.0);
  }
  if (down) targets->push_back(std::string("experts.") + kDown);
}

std::string layer_lost_in_peft(const Adapters& adapters, const std::string& family) {
  if (family != "qwen3_moe" && family != "glm4_moe") return "";  // PEFT's table has no others that we have
  for (const auto& [path, adapter] : adapters)
    if (!is_of_experts(path) && names_single_experts(last_component(path), family)) return path;
  return "";
}

bool names_single_experts(const std::string& target, const std::string& family) {
  const ParamNames& names = param_names(family);
  return !names.expert_down.empty() &&
         (target == last_component(names.expert_gate) || target == last_component(names.expert_up) ||
          target == last_component(names.expert_down));
}

}  // namespace flatshard
