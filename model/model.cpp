#include "model/model.h"

#include "kernels/rope.h"
#include "model/transformer.h"

namespace flatshard {
namespace {

RopeScaling scaling_of(const RopeScalingConfig& c) {
  using Kind = RopeScaling::Kind;
  return {.kind = c.kind == "linear"   ? Kind::linear
                  : c.kind == "llama3" ? Kind::llama3
                                       : Kind::none,
          .factor = c.factor,
          .low_frequency_factor = c.low_freq_factor,
          .high_frequency_factor = c.high_freq_factor,
          .original_positions = c.original_max_positions};
}

}  // namespace

Model::Model(const ModelConfig& config, Arena& tables) : config_(config) {
  if (config.positions == PositionKind::rotary)
    rope_table_ = tables.alloc(DType::f32, {config.max_positions, config.head_dim});
  const int blocks = static_cast<int>(config.layers);
  const bool tied = *config.tied;
  units_.resize(static_cast<size_t>(blocks + (tied ? 1 : 2)));

  auto embedding = std::make_unique<EmbeddingStage>(units_.front(), config);
  const ParamId embedding_weight = embedding->weight();
  stages_.push_back(std::move(embedding));
  unit_of_.push_back(0);
  for (int i = 0; i < blocks; ++i) {
    unit_of_.push_back(i + 1);
    stages_.push_back(std::make_unique<Block>(units_[static_cast<size_t>(i + 1)], config, i, rope_table_));
  }
  unit_of_.push_back(tied ? 0 : blocks + 1);
  stages_.push_back(
      std::make_unique<HeadStage>(units_[static_cast<size_t>(unit_of_.back())], config, embedding_weight));
}

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const ParamList& unit : units_) count += unit.element_count();
  return count;
}

void Model::fill_tables(Stream& stream) {
  if (rope_table_.empty() || stream.planning()) return;
  Memory host(Device::cpu(), rope_table_.bytes());
  Tensor table = rope_table_;
  table.data = host.data();
  table.device = Device::cpu();
  rope_table(table, *config_.rope_theta, scaling_of(config_.rope_scaling));
  copy(stream, rope_table_, table);
  stream.sync();
}

}  // namespace flatshard
