#include "comm/optimizer_kinds.h"

#include <algorithm>

#include "kernels/adamw8bit.h"
#include "kernels/dynamic_table.h"
#include "kernels/lion.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr const char *kMoment = "exp_avg", *kSquare = "exp_avg_sq";  // the names in PyTorch

constinit const OptimizerKind kRows[] = {
    {.name = "adamw",
     .about = "AdamW with fp32 moments",
     .betas = {0.9, 0.999},
     .declared = {StateSpec{.set = kMoment}, {.set = kSquare}},
     .update = adamw},
    {.name = "adamw8bit",
     .about = "AdamW with 8-bit moments, a quarter of the memory",
     .betas = {0.9, 0.999},
     .declared = {StateSpec{.set = kMoment, .dtype = DType::u8, .initial = kSignedZero},
                  {.set = kSquare, .dtype = DType::u8},
                  {.set = kMoment, .suffix = ".absmax", .block = kMomentBlock, .pages = false},
                  {.set = kSquare, .suffix = ".absmax", .block = kMomentBlock, .pages = false}},
     .without_blocks = &kRows[0],
     .update = adamw8bit},
    {.name = "lion",
     .about = "Lion with one fp32 moment, half of AdamW's memory, betas [0.9, 0.99] by default and no eps; "
              "it wants a tenth of AdamW's lr",
     .betas = {0.9, 0.99},
     .has_eps = false,
     .declared = {StateSpec{.set = kMoment}},
     .update = lion},
};

void add_once(std::vector<const char*>& sets, const char* set) {
  if (std::none_of(sets.begin(), sets.end(), [&](std::string_view other) { return other == set; }))
    sets.push_back(set);
}

std::string paged_name(const OptimizerKind& kind) {
  return str("paged_", kind.name, kind.states().front().dtype == DType::f32 ? "32bit" : "");
}

}  // namespace

std::span<const StateSpec> OptimizerKind::states() const {
  const auto end = std::find_if(declared.begin(), declared.end(), [](const StateSpec& s) { return !*s.set; });
  return {declared.begin(), end};
}

std::vector<const char*> OptimizerKind::sets() const {
  std::vector<const char*> sets;
  for (const StateSpec& state : states()) add_once(sets, state.set);
  return sets;
}

int64_t OptimizerKind::largest_block() const {
  int64_t largest = 1;
  for (const StateSpec& state : states()) largest = std::max(largest, state.block);
  return largest;
}

std::span<const OptimizerKind> optimizer_kinds() { return kRows; }

std::vector<const char*> state_sets() {
  std::vector<const char*> sets;
  for (const OptimizerKind& kind : kRows)
    for (const StateSpec& state : kind.states()) add_once(sets, state.set);
  return sets;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerKind& kind : kRows) names.emplace_back(kind.name);
  for (const OptimizerKind& kind : kRows) names.push_back(paged_name(kind));
  return names;
}

std::string name_of(const OptimizerChoice& choice) {
  return choice.paged ? paged_name(*choice.row) : choice.row->name;
}

std::optional<OptimizerChoice> optimizer_named(std::string_view name) {
  for (const OptimizerKind& kind : kRows)
    for (const bool paged : {false, true})
      if (const OptimizerChoice choice{&kind, paged}; name == name_of(choice)) return choice;
  return std::nullopt;
}

}  // namespace flatshard
