#pragma once
// The ways to shard, schedule and split the same run. A subject is a model, dtype and training setup. All
// settings of a subject must produce the same bits, on any power of two of ranks.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/stream.h"
#include "train/config/config.h"

namespace flatshard::test {

// The dimensions of a setting, in the order in which they appear in names.
enum class Dimension {
  subject,
  strategy,
  order,
  cut,
  accumulation,
  recompute,
  keep_root,
  backward_prefetch,
  forward_prefetch,
  depth,
  offload,
  hosts
};
inline constexpr size_t kDimensions = 12;

// The index of the chosen value in each dimension; 0 is the plainest value.
struct Setting {
  std::array<uint8_t, kDimensions> value{};
  uint8_t& operator[](Dimension d) { return value[static_cast<size_t>(d)]; }
  uint8_t operator[](Dimension d) const { return value[static_cast<size_t>(d)]; }
  auto operator<=>(const Setting&) const = default;
};

class Settings {
 public:
  explicit Settings(int ranks);

  // Every family and dtype with every strategy, backward prefetch, depth, recomputation and stream order,
  // over several micro-steps, and the settings of covering().
  std::vector<Setting> nightly() const;
  // A subset that contains every pair of values of two dimensions, and every strategy in every stream order
  // with every value of the other dimensions except the subject.
  std::vector<Setting> covering() const;

  Config config(const Setting& s) const;
  StreamOrder order(const Setting& s) const;
  std::string name(const Setting& s) const;
  // Settings with equal keys must produce equal results. The key is the subject and, if its reductions depend
  // on them, the cut and the group.
  std::string key(const Setting& s) const;

 private:
  const std::string& value(const Setting& s, Dimension d) const;
  bool possible(const Setting& s) const;
  Setting plain_where_it_does_not_count(Setting s) const;
  Strategy strategy_of(const Setting& s) const;
  int group_size(const Setting& s) const;
  // All settings except duplicates, which differ only in options without effect. Takes some seconds.
  std::vector<Setting> all() const;

  int ranks_;
  std::array<std::vector<std::string>, kDimensions> values_;
};

// A run to compare with other runs that have the same key.
struct Trial {
  Config config;
  StreamOrder order;
  std::string key, name;
};

// The common configuration: odd sizes, units of several FlatLayout::kShardMultiple so that shard boundaries
// split parameters, gradient clipping, weight decay, document masking.
inline constexpr int64_t kMatrixVocab = 301, kMatrixLength = 8, kMatrixSequences = 16;
Config matrix_config(const std::string& family);

}  // namespace flatshard::test
