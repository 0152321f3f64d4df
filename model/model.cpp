#include "model/model.h"

#include <cmath>

#include "kernels/rope.h"
#include "model/block.h"
#include "model/transformer.h"
#include "model/vision.h"

namespace flatshard {
namespace {

// The most rows, or columns, of patches that an image can have.
constexpr int64_t kMostPatchesAlong = 4096;
constexpr double kTowerRopeTheta = 10000;

int count_vision_layers(const ModelConfig& config) {
  if (!config.vision) return 0;
  const bool perceiver = config.vision->connector == ConnectorKind::perceiver;
  return static_cast<int>(2 + config.vision->layers + (perceiver ? config.vision->perceiver.layers : 0));
}

}  // namespace

Model::Model(const ModelConfig& config, Arena& tables, LayerCut cut, int64_t positions)
    : config_(config), cut_(cut), embedding_layer_(count_vision_layers(config)) {
  const auto any_block = [&](auto&& is) {
    for (int64_t i = 0; i < config.layers; ++i)
      if (config.rotates(i) && is(i)) return true;
    return false;
  };
  if (positions == 0) positions = config.context > 0 ? config.context : config.max_positions;
  const auto table = [&] { return tables.alloc(DType::f32, {positions, config.rotated_width()}); };
  if (any_block([&](int64_t i) { return !config.has_window_rope(i); })) rope_table_ = table();
  if (any_block([&](int64_t i) { return config.has_window_rope(i); })) window_rope_table_ = table();
  if (config.vision && config.vision->tower.rotary)
    tower_rope_table_ =
        tables.alloc(DType::f32, {kMostPatchesAlong, config.vision->hidden / config.vision->heads});
  const int blocks = static_cast<int>(config.layers) * layers_of_block();
  const bool tied = *config.tied;
  const int head = embedding_layer_ + blocks + 1;
  for (int i = 0; i < head; ++i) param_list_of_.push_back(i);
  param_list_of_.push_back(tied ? embedding_layer_ : head);

  param_lists_.resize(static_cast<size_t>(tied ? head : head + 1));
  layers_.push_back(make_layers());
}

void Model::add_layer_sets(int count, const std::function<bool(int)>& has) {
  while (static_cast<int>(layers_.size()) < count) {
    Layers set(layers_.front().size());
    for (size_t i = 0; i < set.size(); ++i)
      if (has(static_cast<int>(i))) set[i] = layers_.front()[i]->clone();
    layers_.push_back(std::move(set));
  }
}

Tensor Model::rope_table_of(int64_t block) const {
  if (!config_.rotates(block)) return {};
  return config_.has_window_rope(block) ? window_rope_table_ : rope_table_;
}

Model::Layers Model::make_layers() {
  const auto list = [&](size_t layer) -> ParamList& {
    return param_lists_[static_cast<size_t>(param_list_of_[layer])];
  };
  Layers layers;
  if (config_.vision) add_vision_layers(layers);
  auto embedding = std::make_unique<EmbeddingLayer>(list(layers.size()), config_);
  const ParamId embedding_weight = embedding->weight();
  layers.push_back(std::move(embedding));
  for (int64_t i = 0; i < config_.layers; ++i) {
    if (cut_ == LayerCut::blocks) {
      layers.push_back(std::make_unique<Block>(list(layers.size()), config_, i, rope_table_of(i)));
      continue;
    }
    layers.push_back(std::make_unique<AttentionHalf>(list(layers.size()), config_, i, rope_table_of(i)));
    layers.push_back(std::make_unique<MlpHalf>(list(layers.size()), config_, i));
  }
  layers.push_back(std::make_unique<HeadLayer>(list(layers.size()), config_, embedding_weight));
  return layers;
}

void Model::add_vision_layers(Layers& layers) {
  const VisionConfig& vision = *config_.vision;
  const auto add = [&]<class L, class... Args>(const Args&... args) {
    layers.push_back(std::make_unique<L>(param_lists_[layers.size()], config_, args...));
  };
  add.operator()<PatchEmbedding>();
  for (int64_t i = 0; i < vision.layers; ++i) add.operator()<TowerBlock>(i, tower_rope_table_);
  if (vision.connector == ConnectorKind::pixel_shuffle) return add.operator()<PixelShuffle>();
  if (vision.connector == ConnectorKind::merger) return add.operator()<PatchMerger>();
  add.operator()<ModalityProjection>();
  for (int64_t i = 0; i < vision.perceiver.layers; ++i) add.operator()<PerceiverLayer>(i);
}

Shape Model::largest_output(int first, int end, const RowCounts& rows) const {
  Shape largest{0};
  for (int layer = first; layer < end; ++layer) {
    const Shape shape = output(layer, rows);
    if (shape.size() > largest.size()) largest = shape;
  }
  return largest;
}

int64_t Model::active_parameter_count() const {
  double count = 0;
  for (const ParamList& list : param_lists_)
    for (const ParamSpec& spec : list.specs())
      count += static_cast<double>(spec.parameter_count()) * spec.share;
  return static_cast<int64_t>(std::llround(count));
}

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const ParamList& list : param_lists_) count += list.parameter_count();
  return count;
}

void Model::fill_tables(Stream& stream) {
  if (stream.planning()) return;
  const auto fill = [&](const Tensor& table, const std::vector<double>& frequencies, double factor) {
    if (table.empty()) return;
    Memory host(Device::cpu(), table.bytes());
    Tensor values = table;
    values.data = host.data();
    values.device = Device::cpu();
    rope_table(values, frequencies, factor);
    copy(stream, table, values);
    stream.sync();
  };
  const auto fill_text = [&](const Tensor& table, double theta, const RopeScaling& scaling) {
    if (!table.empty())
      fill(table, rope_frequencies(table.shape[1], theta, scaling), scaling.attention_factor);
  };
  fill_text(rope_table_, *config_.rope_theta, config_.scaling());
  fill_text(window_rope_table_, *config_.window_rope_theta, {});
  if (tower_rope_table_.empty()) return;
  // Rows and columns have the same frequencies.
  std::vector<double> of_tower = rope_frequencies(tower_rope_table_.shape[1] / 2, kTowerRopeTheta);
  of_tower.insert(of_tower.end(), of_tower.begin(), of_tower.end());
  fill(tower_rope_table_, of_tower, 1);
}

ParamTensors allocate_parameters(const Model& model, DType dtype, Arena& arena) {
  ParamTensors parameters;
  for (const ParamList& list : model.param_lists()) {
    parameters.emplace_back();
    const std::vector<ParamSpec>& specs = list.specs();
    for (size_t begin = 0, end; begin < specs.size(); begin = end) {  // a run of joined parameters
      const DType stored = specs[begin].dtype.value_or(dtype);
      int64_t size = specs[begin].shape.size();
      for (end = begin + 1; end < specs.size() && specs[end].joined; ++end) size += specs[end].shape.size();
      const Tensor all = arena.alloc(stored, {size});
      int64_t at = 0;
      for (size_t i = begin; i < end; at += specs[i++].shape.size())
        parameters.back().push_back(all.slice(at, at + specs[i].shape.size()).view(specs[i].shape));
    }
  }
  return parameters;
}

}  // namespace flatshard
