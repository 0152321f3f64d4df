#pragma once
// The optimizers as a table. A row declares an optimizer's state, the tensors that it keeps for the elements
// of a shard, and the kernel that updates the shard. Units, paging, snapshots, checkpoints, plans and `ckpt`
// iterate over the states of a row; the config, its help and its messages list the rows. So a new optimizer
// takes an op and a row.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/optimizer_update.h"
#include "runtime/stream.h"

namespace flatshard {

// A tensor of an optimizer's state: one value for every `block` elements of a shard.
struct StateSpec {
  const char* set = "";     // the checkpoint files that store it (train/save/shard_files.h)
  const char* suffix = "";  // suffix of the parameter's name in these files
  DType dtype = DType::f32;
  int64_t block = 1;          // parameters and shards begin at multiples of `block`
  bool pages = true;          // whether paging moves it to host memory
  unsigned char initial = 0;  // value of each byte before the first step

  int64_t size(int64_t elements) const { return (elements + block - 1) / block; }
};

struct OptimizerKind {
  const char* name;             // value of optimizer.kind
  const char* about;            // text for --help
  std::array<double, 2> betas;  // defaults of the config
  bool has_eps = true;          // whether the optimizer reads eps
  std::array<StateSpec, kMostStates> declared;
  // The optimizer with the same rule but without blocks, for units that are too small or not aligned for the
  // blocks of this one. It must be set if a block is larger than 1.
  const OptimizerKind* without_blocks = nullptr;
  void (*update)(Stream& stream, const OptimizerUpdate& a);  // the op

  std::span<const StateSpec> states() const;
  std::vector<const char*> sets() const;  // sets of the states, without duplicates
  int64_t largest_block() const;
};

std::span<const OptimizerKind> optimizer_kinds();  // the first is the default

// The sets of all optimizers, without duplicates.
std::vector<const char*> state_sets();

// The value of optimizer.kind: a row, and whether its state is paged. The paged form of "adamw" is named
// "paged_adamw32bit"; the paged form of "adamw8bit", a name that ends with its bits, is "paged_adamw8bit".
struct OptimizerChoice {
  const OptimizerKind* row = &optimizer_kinds().front();
  bool paged = false;

  bool operator==(const OptimizerChoice&) const = default;
};

std::vector<std::string> optimizer_names();
std::string name_of(const OptimizerChoice& choice);
std::optional<OptimizerChoice> optimizer_named(std::string_view name);

}  // namespace flatshard
