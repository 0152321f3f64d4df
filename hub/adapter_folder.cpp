#include "hub/adapter_folder.h"

#include <algorithm>

#include "checkpoint/float_values.h"
#include "checkpoint/tensor_difference.h"
#include "hub/model_folder.h"
#include "hub/peft_names.h"
#include "model/names.h"
#include "runtime/parallel.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

constexpr const char kPrefix[] = "base_model.model.";
constexpr char kBaseLayer[] = ".base_layer";
constexpr const char kA[] = ".lora_A.weight", kB[] = ".lora_B.weight", kWeight[] = ".weight";

std::string without_end(const std::string& name, const std::string& end) {
  return name.substr(0, name.size() - end.size());
}

// PEFT's targets for a config without targets.
std::vector<std::string> default_targets(const ParamNames& names) {
  if (names.fused_qkv()) return {last_component(names.qkv)};
  return {last_component(names.q), last_component(names.v)};
}

bool has_no_targets(const ModulePatterns& targets) {
  const auto* list = std::get_if<std::vector<std::string>>(&targets);
  return list && list->empty();
}

std::vector<float> transposed(const std::vector<float>& matrix, int64_t rows) {
  const int64_t columns = std::ssize(matrix) / rows;
  std::vector<float> result(matrix.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      result[static_cast<size_t>(c * rows + r)] = matrix[static_cast<size_t>(r * columns + c)];
  return result;
}

}  // namespace

std::string adapter_tensor_name(const std::string& parameter) { return kPrefix + parameter; }

LoraConfig selection_of(const AdapterConfig& config, const std::string& family) {
  LoraConfig lora = config.lora;
  const auto name = [&](const std::string& of_peft) { return name_in_files(family, of_peft); };
  for (auto* const patterns : {&lora.rank_pattern, &lora.alpha_pattern}) {
    std::map<std::string, double> renamed;
    for (const auto& [pattern, value] : *patterns) renamed[name(pattern)] = value;
    *patterns = std::move(renamed);
  }
  for (std::string& module : lora.save_modules) module = name(module);
  if (auto* const list = std::get_if<std::vector<std::string>>(&lora.targets))
    for (std::string& target : *list) target = name(target);
  if (has_no_targets(lora.targets) && config.parameters.empty())
    lora.targets = default_targets(param_names(family));
  select_experts(lora, config.parameters, family);
  return lora;
}

AdapterFolder::AdapterFolder(const std::string& folder, const Model& base)
    : folder_(folder),
      family_(base.config().family),
      config_(read_adapter_config(folder + "/" + kAdapterConfigName, warnings_)),
      tensors_(folder, kAdapterStem),
      tied_(*base.config().tied),
      experts_(base.config().experts),
      vocab_(base.config().vocab) {
  const ParamNames& names = param_names(base.config().family);
  embedding_ = names.embedding + kWeight;
  head_ = names.head + kWeight;
  transposed_ = names.transposed_weights;
  config_.lora = selection_of(config_, family_);
  check_names(base);
}

void AdapterFolder::check_names(const Model& base) {
  Shapes shapes;
  std::vector<std::string> order;
  for (const SafetensorsSpec& spec : weight_specs(base, DType::f32)) {
    shapes[spec.name] = spec.shape;
    order.push_back(spec.name);
  }
  const std::vector<std::string> linear = linear_layers(base);
  for (const auto& [name, entry] : tensors_.entries()) {
    const std::string shown = printable(name);
    check(name.starts_with(kPrefix), tensors_.path(), ": the name ", shown, " does not begin with ", kPrefix,
          ", as those of PEFT's LoRA adapters do");
    check(float_dtype(*entry).has_value(), tensors_.path(), ": ", shown, " is ", entry->dtype,
          ", must be F32, BF16 or F16");
    std::string parameter = name_in_files(family_, name.substr(std::size(kPrefix) - 1));
    if (is_of_all_experts(parameter)) {
      add_experts(parameter, *entry, base.config(), config_.parameters);
      continue;
    }
    // PEFT copies the weight of a head that has an adapter.
    if (const size_t at = parameter.rfind(kBaseLayer); at != std::string::npos)
      parameter.erase(at, std::size(kBaseLayer) - 1);
    check(parameter.find(".lora_embedding_") == std::string::npos, tensors_.path(), ": ", shown,
          ": adapters of embeddings are not supported");
    const bool of_layer = parameter.ends_with(kA) || parameter.ends_with(kB);
    if (of_layer) {
      const std::string path = without_end(parameter, kA);
      check(std::find(linear.begin(), linear.end(), path) != linear.end(), tensors_.path(), ": ", shown,
            ": the base has no such layer, or one that cannot have an adapter: its layers are named like ",
            linear.front(), ": check that the adapter was made for this base");
      if (is_of_experts(path))
        of_single_experts_[parameter] = entry;
      else
        add_layer(parameter, *entry, shapes);
    } else {
      add_replaced(parameter, *entry, shapes);
    }
  }
  join_single_experts(base.config());
  check_layers();
  check_vocabulary(shapes);
  for (const std::string& parameter : order)
    if (entries_.contains(parameter)) replaced_.push_back(parameter);
}

void AdapterFolder::add_experts(const std::string& name, const SafetensorsEntry& entry,
                                const ModelConfig& config, std::span<const std::string> parameters) {
  const std::string where = str(tensors_.path(), ": ", printable(entry.name));
  for (ExpertPart& part : expert_parts(name, entry, config, parameters, where)) {
    const std::string parameter = part.parameter;
    const int64_t other = ranks_.try_emplace(part.layer, part.rank).first->second;
    check(other == part.rank, where, " has rank ", part.rank, " for ", part.layer, ", which has rank ",
          other);
    entries_[part.layer + (part.is_a ? kA : kB)] = {&entry};
    entries_[parameter] = {&entry, std::move(part)};
  }
  entries_[name] = {&entry};
}

// Adapters of single experts become those of all.
void AdapterFolder::join_single_experts(const ModelConfig& config) {
  if (of_single_experts_.empty()) return;
  const ParamNames& names = param_names(family_);
  for (int64_t i = 0; i < config.layers; ++i) {
    if (!config.has_experts(i)) continue;
    const std::string block = block_prefix(names, i), down = block + names.expert_down;
    const bool nested = of_single_experts_.contains(of_expert(down, 0) + kA);
    if (names.interleaved_experts())
      join_layers(config, {block + names.expert_gate_up}, config.hidden, 2 * config.expert_ffn, nested);
    else
      join_layers(config, {block + names.expert_gate, block + names.expert_up}, config.hidden,
                  config.expert_ffn, nested);
    join_layers(config, {down}, config.expert_ffn, config.hidden, false);
  }
  check(of_single_experts_.empty(), tensors_.path(), ": ",
        of_single_experts_.empty() ? "" : adapter_tensor_name(of_single_experts_.begin()->first),
        " is of one expert: all experts of a block have adapters of gate and up, of down, or of both");
}

// Makes one a and one b of the layers of all experts of a block, which are side by side.
void AdapterFolder::join_layers(const ModelConfig& config, const std::vector<std::string>& layers, int64_t in,
                                int64_t out, bool nested) {
  const std::string first = of_expert(layers.front(), 0);
  if (!of_single_experts_.contains(first + kA)) return;
  const auto side = std::ssize(layers);
  int64_t rank = 0;
  for (const char* const end : {kA, kB}) {
    const bool is_a = end == kA;
    SafetensorsEntry& made = made_.emplace_back(*of_single_experts_.at(first + kA));
    const std::string name = module_of_experts(first) + (nested ? kBaseLayer : "") + end;
    made.name = adapter_tensor_name(name);
    std::vector<SingleExpert>& singles = made_of_[&made];
    for (int64_t e = 0; e < config.experts; ++e)
      for (int64_t l = 0; l < side; ++l) {
        const std::string parameter = of_expert(layers[static_cast<size_t>(l)], e) + end;
        const auto found = of_single_experts_.find(parameter);
        check(found != of_single_experts_.end(), tensors_.path(), ": ", adapter_tensor_name(parameter),
              " is missing: all experts of a block have adapters, gate and up both");
        const SafetensorsEntry& entry = *found->second;
        const bool matrix = entry.shape.size() == 2;
        if (rank == 0 && matrix) rank = entry.shape[0];
        check(matrix && rank > 0 && entry.shape == (is_a ? std::vector{rank, in} : std::vector{out, rank}),
              tensors_.path(), ": ", entry.name, " is ", in_brackets(entry.shape), ", must be ",
              is_a ? str("[rank, ", in, "]") : str("[", out, ", rank]"), " with one rank for all experts");
        singles.push_back({.entry = &entry, .expert = e, .first_rank = l * rank, .first_row = l * out});
      }
    made.shape = is_a ? std::vector{config.experts * side * rank, in}
                      : std::vector{side * out, side * rank * config.experts};
    const std::string parameter = adapted_layer(first);
    add_experts(name, made, config, std::span(&parameter, 1));
  }
  for (const std::string& layer : layers)
    for (int64_t e = 0; e < config.experts; ++e)
      for (const char* const end : {kA, kB}) of_single_experts_.erase(of_expert(layer, e) + end);
}

void AdapterFolder::add_layer(const std::string& parameter, const SafetensorsEntry& entry,
                              const Shapes& shapes) {
  const bool is_a = parameter.ends_with(kA);
  const std::string path = without_end(parameter, kA);  // both ends have the same length
  const std::vector<int64_t>& weight = shapes.at(path + kWeight);
  const int64_t in = weight[transposed_ ? 0 : 1], out = weight[transposed_ ? 1 : 0];
  const bool matrix = entry.shape.size() == 2;
  const int64_t rank = matrix ? entry.shape[is_a ? 0 : 1] : 0;
  check(matrix && rank >= 1 && rank <= kMostLoraRank && entry.shape[is_a ? 1 : 0] == (is_a ? in : out),
        tensors_.path(), ": ", entry.name, " is ", in_brackets(entry.shape), ", must be ",
        is_a ? str("[rank, ", in, "]") : str("[", out, ", rank]"), " for this base, with a rank from 1 to ",
        kMostLoraRank);
  const int64_t other = ranks_.try_emplace(path, rank).first->second;
  check(other == rank, tensors_.path(), ": ", entry.name, " has rank ", rank, ", but the layer's a has rank ",
        other);
  entries_[parameter] = {&entry};
}

void AdapterFolder::add_replaced(const std::string& parameter, const SafetensorsEntry& entry,
                                 const Shapes& shapes) {
  if (tied_ && parameter == head_) {
    const SafetensorsEntry* embedding = tensors_.find(tensor_name(embedding_));
    check(embedding && same_bits(entry, *embedding), tensors_.path(), ": ", entry.name,
          " differs from the embedding, but the base ties the two: this is not supported");
    return;
  }
  const auto found = shapes.find(parameter);
  check(found != shapes.end(), tensors_.path(), ": ", printable(entry.name),
        " is not a parameter of the base, nor lora_A or lora_B of a layer: check that the adapter was made "
        "for this base");
  std::vector<int64_t> wanted = found->second;
  const bool resizable = parameter == embedding_ || parameter == head_;
  if (resizable && entry.shape.size() == 2 && entry.shape[0] > 0) wanted[0] = entry.shape[0];
  check(entry.shape == wanted, tensors_.path(), ": ", entry.name, " is ", in_brackets(entry.shape),
        ", must be ", in_brackets(found->second), " for this base");
  entries_[parameter] = {&entry};
}

void AdapterFolder::check_layers() {
  check(!ranks_.empty(), tensors_.path(), ": has no lora_A or lora_B, so it is not a LoRA adapter");
  std::vector<std::string> paths;
  for (const auto& [path, rank] : ranks_) {
    paths.push_back(path);
    for (const char* end : {kA, kB})
      check(has(path + end), tensors_.path(), ": ", tensor_name(path + end), " is missing");
  }
  AdapterChoice choice = adapters_of(config_.lora, paths);
  adapters_ = std::move(choice.adapters);
  for (const std::string& warning : choice.warnings)
    warnings_.push_back(str(folder_, "/", kAdapterConfigName, ": ", warning));
  for (const auto& [path, adapter] : adapters_)
    check(ranks_.at(path) == adapter.rank, tensors_.path(), ": the adapter of ", path, " has rank ",
          ranks_.at(path), ", but its rank in ", kAdapterConfigName, " is ", adapter.rank);
}

// Embedding and head have as many rows as the vocabulary: either both are resized, or neither.
void AdapterFolder::check_vocabulary(const Shapes& shapes) {
  const int64_t before = vocab_;
  for (const std::string& name : {embedding_, head_})
    if (has(name)) vocab_ = entry(name).shape[0];
  for (const std::string& name : {embedding_, head_}) {
    if (!shapes.contains(name)) continue;
    const bool own = has(name);
    const int64_t rows = own ? entry(name).shape[0] : before;
    check(rows == vocab_, tensors_.path(), ": ", name, own ? " has " : " is missing and has ", rows,
          " rows in ", own ? "this file" : "the base", ", but the adapter resizes the vocabulary to ",
          vocab_);
  }
}

std::string AdapterFolder::tensor_name(const std::string& parameter) const {
  return adapter_tensor_name(peft_name(family_, parameter));
}

bool AdapterFolder::has(const std::string& parameter) const { return entries_.contains(parameter); }

// The layer whose adapter changes the weight.
std::string AdapterFolder::layer_of(const std::string& weight) const {
  return adapted_layer(without_end(weight, kWeight));
}

bool AdapterFolder::adapts(const std::string& weight) const {
  return weight.ends_with(kWeight) && adapters_.contains(layer_of(weight));
}

const std::vector<float>& AdapterFolder::whole_tensor(const SafetensorsEntry& entry) const {
  WholeTensor& whole = of_experts_[entry.name.ends_with(kA) ? 1 : 0];
  if (whole.entry == &entry) return whole.values;
  whole.entry = &entry;
  if (const auto made = made_of_.find(&entry); made != made_of_.end()) {
    whole.values = joined_values(entry, experts_, made->second);
  } else {
    whole.values.resize(static_cast<size_t>(element_count(entry)));
    read_floats(entry, 0, std::ssize(whole.values), whole.values.data());
  }
  return whole.values;
}

void AdapterFolder::read(const std::string& parameter, int64_t first, int64_t count, float* to) const {
  const Place& place = entries_.at(parameter);
  if (!place.part && !made_of_.contains(place.entry)) {
    read_floats(*place.entry, first, count, to);
  } else {
    const std::vector<float>& whole = whole_tensor(*place.entry);
    if (place.part)
      read_part(*place.part, whole, first, count, to);
    else
      std::copy_n(whole.begin() + first, count, to);
  }
  const std::optional<int64_t> wrong = first_non_finite({to, static_cast<size_t>(count)});
  check(!wrong, tensors_.path(), ": ", parameter, ": element ", first + wrong.value_or(0), " is ",
        wrong ? to[*wrong] : 0.0f, ", must be finite: the adapter is damaged");
}

std::vector<float> AdapterFolder::read_all(const std::string& parameter) const {
  const std::optional<ExpertPart>& part = entries_.at(parameter).part;
  std::vector<float> values(
      static_cast<size_t>(part ? part->rows * part->columns : element_count(entry(parameter))));
  read(parameter, 0, std::ssize(values), values.data());
  return values;
}

void AdapterFolder::load(const std::string& weight, const Adapter& adapter) {
  const std::string path = without_end(weight, kWeight);
  std::vector<float> a = read_all(path + kA), b = read_all(path + kB);
  const int64_t out = std::ssize(b) / adapter.rank, in = std::ssize(a) / adapter.rank;
  const bool turned =
      transposed_ || (param_names(family_).interleaved_experts() && !module_of_experts(path).empty());
  update_ = {.weight = weight,
             .columns = turned ? out : in,
             .rank = adapter.rank,
             .left = turned ? transposed(a, adapter.rank) : std::move(b),
             .right = turned ? transposed(b, out) : std::move(a),
             .scale = adapter.scale};
}

void AdapterFolder::merge(const std::string& weight, int64_t first, int64_t count, float* values) {
  if (!adapts(weight)) return;
  if (update_.weight != weight) load(weight, adapters_.at(layer_of(weight)));
  constexpr int64_t kPiece = 512;  // number of elements whose update is computed at a time
  const Update& u = update_;
  parallel_blocks(count, kPiece * 64, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end;) {
      const int64_t row = (first + at) / u.columns, column = (first + at) % u.columns;
      const int64_t width = std::min({kPiece, end - at, u.columns - column});
      float delta[kPiece] = {};
      for (int64_t k = 0; k < u.rank; ++k) {
        const float factor = u.left[static_cast<size_t>(row * u.rank + k)];
        const float* right = &u.right[static_cast<size_t>(k * u.columns + column)];
        for (int64_t i = 0; i < width; ++i) delta[i] += factor * right[i];
      }
      for (int64_t i = 0; i < width; ++i) values[at + i] += u.scale * delta[i];
      at += width;
    }
  });
}

}  // namespace flatshard
