#include "hub/published_weights.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "checkpoint/float_values.h"
#include "checkpoint/tensor_difference.h"
#include "hub/quantized/read_values.h"
#include "model/names.h"

namespace flatshard {
namespace {

// Whether a tensor is of a block behind the last, which predicts more tokens at once.
bool is_behind_last(const std::string& name, const ModelConfig& config) {
  const std::string block = param_names(config.family).block;
  const std::string prefix = block.substr(0, block.find("{i}"));
  return family(config.family).sigmoid_router && name.starts_with(prefix) &&
         std::atoll(name.c_str() + prefix.size()) >= config.layers;
}

bool is_buffer(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias");
}

std::optional<TensorFolder> open_folder(const std::string& published, const ModelConfig& config) {
  if (is_gguf(published)) return {};
  return std::optional<TensorFolder>(std::in_place, published, kWeightsStem, joined_experts(config));
}

std::string listed(const char* what, const std::vector<std::string>& names) {
  constexpr size_t kShown = 6;
  if (names.empty()) return "";
  std::string text = str("; ", names.size(), ' ', what, ": ");
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) text += str(i ? ", " : "", names[i]);
  return names.size() > kShown ? text + ", ..." : text;
}

}  // namespace

std::string published_config_path(const std::string& model) {
  return is_gguf(model) ? model : model + "/config.json";
}

ModelConfig read_published_config(const std::string& model) {
  std::error_code none;
  check(is_model_path(model) || !std::filesystem::is_regular_file(model, none), model,
        ": is neither a folder nor a GGUF file");
  return is_gguf(model) ? read_gguf_config(GgufFile(model)) : read_hf_config(published_config_path(model));
}

std::optional<QuantizationConfig> read_published_quantization(const std::string& model) {
  if (is_gguf(model)) return {};
  return read_quantization_config(published_config_path(model));
}

TensorEntries model_tensors(const TensorFolder& tensors, const ModelConfig& config) {
  const ParamNames& names = param_names(config.family);
  const std::string head = names.head + ".weight", embedding = names.embedding + ".weight",
                    prefix = embedding.substr(0, embedding.find('.') + 1);
  const auto& all = tensors.entries();
  const bool bare =
      config.positions == PositionKind::learned &&
      std::none_of(all.begin(), all.end(), [&](const auto& item) { return item.first.starts_with(prefix); });
  TensorEntries found;
  for (const auto& [name, entry] : all)
    if (!is_buffer(name) && !is_behind_last(name, config))
      found[bare && name != head ? prefix + name : name] = entry;
  if (*config.tied && found.contains(head) && found.contains(embedding) &&
      same_bits(*found[head], *found[embedding]))
    found.erase(head);
  return found;
}

std::map<std::string, FourBitFormat> four_bit_layers(const std::string& folder, const ModelConfig& config) {
  const std::optional<QuantizationConfig> quantization = read_published_quantization(folder);
  if (!quantization) return {};
  const std::string path = published_config_path(folder), head = param_names(config.family).head + ".weight";
  const TensorFolder tensors(folder, kWeightsStem);
  const QuantizedTensors quantized(tensors.path(), model_tensors(tensors, config));
  check(!quantized.empty(), path, ": has quantization_config, but ", tensors.path(),
        " has no 4-bit weights: remove it, or download all files of the folder again");
  std::map<std::string, FourBitFormat> layers;
  for (const auto& [name, weight] : quantized.weights()) {
    if (name == head) continue;  // a model has no 4-bit head
    FourBitFormat& format = layers[name.substr(0, name.rfind('.'))] = weight.format;
    format.compute = quantization->format.compute;
  }
  return layers;
}

PublishedWeights::PublishedWeights(const std::string& published, const Model& model, int64_t vocab)
    : tensors_(open_folder(published, model.config())),
      path_(tensors_ ? tensors_->path() : published),
      entries_(tensors_ ? model_tensors(*tensors_, model.config()) : TensorEntries{}),
      quantized_(path_, entries_),
      mxfp4_(path_, entries_, model.config()),
      transposed_(param_names(model.config().family).transposed_weights) {
  if (tensors_)
    for (const auto& [name, entry] : tensors_->entries())
      left_out_ += is_behind_last(name, model.config()) ? 1 : 0;
  if (!tensors_) {
    gguf_.emplace(published);
    for (GgufParameter& p : gguf_parameters(read_gguf_config(*gguf_)))
      // The head of a tied model has the embedding's values.
      if (std::vector<GgufParameter>& tensors = of_gguf_[p.parameter]; tensors.empty() || p.turn > 0)
        tensors.push_back(std::move(p));
  }
  check_match(model, vocab);
}

// The shape of the parameter in a model without 4-bit weights.
std::vector<int64_t> PublishedWeights::shape_of(const std::string& name) const {
  if (gguf_) return of_gguf_.at(name).front().shape_in_model();
  if (mxfp4_.has(name)) return mxfp4_.shape_of(name);
  const auto found = quantized_.weights().find(name);
  if (found == quantized_.weights().end()) return entries_.at(name)->shape;
  const auto& [format, out, in] = found->second;
  return transposed_ ? std::vector<int64_t>{in, out} : std::vector<int64_t>{out, in};
}

void PublishedWeights::check_match(const Model& model, int64_t vocab) const {
  const ParamNames& names = param_names(model.config().family);
  std::vector<std::string> missing, other;
  std::set<std::string> adapters, unexpected;
  for (const ParamList& list : model.param_lists())
    for (const ParamSpec& spec : list.specs())
      if (spec.role == ParamRole::adapter) adapters.insert(spec.name);
  for (const auto& [name, entry] : entries_) unexpected.insert(name);
  for (const auto& [name, parameter] : of_gguf_) unexpected.insert(name);
  for (const std::string& name : quantized_.names())
    if (!quantized_.weights().contains(name)) unexpected.erase(name);
  for (const std::string& name : mxfp4_.names()) unexpected.erase(name);
  for (SafetensorsSpec& spec : weight_specs(model, DType::f32)) {
    if (adapters.contains(spec.name)) continue;
    if (spec.name == names.embedding + ".weight" || spec.name == names.head + ".weight")
      spec.shape.front() = vocab;
    unexpected.erase(spec.name);
    if (!entries_.contains(spec.name) && !of_gguf_.contains(spec.name) && !mxfp4_.has(spec.name))
      missing.push_back(spec.name);
    else if (const std::vector<int64_t> shape = shape_of(spec.name); shape != spec.shape)
      other.push_back(spec.name + " " + in_brackets(shape) + " instead of " + in_brackets(spec.shape));
  }
  const std::string problems = listed("missing", missing) + listed("with a wrong shape", other) +
                               listed("unexpected", {unexpected.begin(), unexpected.end()});
  check(problems.empty(), path_, ": the tensors do not match config.json", problems,
        ": download all files of the folder again, from one model");
  std::set<std::string> checked;
  for (const std::string& name : quantized_.names()) checked.insert(name);
  for (const std::string& name : mxfp4_.names()) checked.insert(name);
  for (const auto& [name, entry] : entries_)
    check(checked.contains(name) || float_dtype(*entry).has_value(), path_, ": ", name, " is ", entry->dtype,
          ", must be F32, BF16 or F16");
}

void PublishedWeights::read_stored(const std::string& name, int64_t first, int64_t count, float* to) {
  if (gguf_) return read_from_gguf(of_gguf_.at(name), *gguf_, first, count, to);
  if (mxfp4_.has(name)) return mxfp4_.read(name, first, count, to);
  const auto found = quantized_.weights().find(name);
  if (found == quantized_.weights().end()) return read_floats(*entries_.at(name), first, count, to);
  const FourBitWeight& weight = found->second;
  const ReadMatrix read = [&](int64_t at, int64_t n, float* values) { quantized_.read(name, at, n, values); };
  if (transposed_)
    read_transposed(read, weight.out, weight.in, first, count, to);
  else
    read(first, count, to);
}

void PublishedWeights::read(const std::string& name, int64_t first, int64_t count, float* to) {
  int64_t stored = 1;
  for (const int64_t extent : shape_of(name)) stored *= extent;
  const int64_t there = std::clamp<int64_t>(stored - first, 0, count);
  if (there > 0) read_stored(name, first, there, to);
  const std::optional<int64_t> wrong = first_non_finite({to, static_cast<size_t>(there)});
  check(!wrong, path_, ": ", name, ": element ", first + wrong.value_or(0), " is ", wrong ? to[*wrong] : 0.0f,
        ", must be finite: the weights are damaged: download them again");
  if (there == count) return;
  const std::vector<float>& mean = mean_row(name);
  const size_t width = mean.size();
  for (int64_t i = there; i < count; ++i) to[i] = mean[static_cast<size_t>(first + i) % width];
}

void PublishedWeights::read_bytes(const std::string& part, int64_t first, int64_t count,
                                  std::byte* to) const {
  quantized_.read_bytes(part, first, count, to);
}

// Sums in double, row by row, so that every rank gets the same bits.
const std::vector<float>& PublishedWeights::mean_row(const std::string& name) {
  std::vector<float>& mean = mean_rows_[name];
  if (!mean.empty()) return mean;
  const std::vector<int64_t> shape = shape_of(name);
  const int64_t rows = shape[0], width = shape[1];
  std::vector<float> row(static_cast<size_t>(width));
  std::vector<double> sum(row.size());
  for (int64_t r = 0; r < rows; ++r) {
    read_stored(name, r * width, width, row.data());
    for (size_t i = 0; i < row.size(); ++i) sum[i] += static_cast<double>(row[i]);
  }
  for (const double s : sum) mean.push_back(static_cast<float>(s / static_cast<double>(rows)));
  return mean;
}

DType PublishedWeights::gguf_dtype(const std::string& name) const {
  const std::optional<GgmlType> type = ggml_type_of(gguf_->find(of_gguf_.at(name).front().name)->type);
  return type == GgmlType::f32 ? DType::f32 : type == GgmlType::f16 ? DType::f16 : DType::bf16;
}

std::string PublishedWeights::describe() const {
  if (gguf_) return str(path_, ", ", gguf_types(*gguf_));
  std::set<std::string> parts, kinds;
  for (const std::string& name : quantized_.names()) parts.insert(name);
  for (const std::string& name : mxfp4_.names()) parts.insert(name);
  for (const auto& [name, entry] : entries_)
    if (!parts.contains(name)) kinds.insert(entry->dtype);
  for (const auto& [name, weight] : quantized_.weights())
    kinds.insert(str("4-bit ", name_of(weight.format.kind), weight.format.nested ? ", nested scales" : ""));
  if (!mxfp4_.empty()) kinds.insert("experts in MXFP4");
  std::string text = path_;
  for (const std::string& kind : kinds) text += ", " + kind;
  if (left_out_ > 0)
    text += str(", without ", left_out_, " tensors of blocks that predict more tokens at once");
  return text;
}

}  // namespace flatshard
