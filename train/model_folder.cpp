#include "train/model_folder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "model/names.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kConvertBlock = 1 << 16;

std::vector<int64_t> dims_of(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

// dst = src in dst's dtype, on the host; src may lie at any address.
template <class From>
void convert(const Tensor& dst, const std::byte* src) {
  visit_float(dst.dtype, [&]<class To>() {
    To* to = dst.as<To>();
    parallel_blocks(dst.size(), kConvertBlock, [&](int64_t begin, int64_t end) {
      if constexpr (std::is_same_v<From, To>) {
        std::memcpy(static_cast<void*>(to + begin), src + begin * int64_t{sizeof(From)},
                    static_cast<size_t>(end - begin) * sizeof(From));
      } else {
        for (int64_t i = begin; i < end; ++i) {
          From value;
          std::memcpy(static_cast<void*>(&value), src + i * int64_t{sizeof(From)}, sizeof(From));
          to[i] = To(static_cast<float>(value));
        }
      }
    });
  });
}

void read_tensor(const std::string& path, const Tensor& dst, const SafetensorsEntry& entry) {
  const std::byte* src = entry.bytes.data();
  if (entry.dtype == "F32") return convert<float>(dst, src);
  if (entry.dtype == "BF16") return convert<bf16>(dst, src);
  if (entry.dtype == "F16") return convert<f16>(dst, src);
  fail(str(path, ": ", entry.name, " is ", entry.dtype, ", must be F32, BF16 or F16"));
}

// The file's tensors under the names of the model.
class NamedWeights {
 public:
  NamedWeights(const TensorFolder& file, const Model& model) : path_(file.path()) {
    const ParamNames& names = param_names(model.config().family);
    const std::string prefix = names.embedding.substr(0, names.embedding.find('.') + 1);
    const bool bare = model.config().positions == PositionKind::learned &&
                      std::none_of(file.entries().begin(), file.entries().end(),
                                   [&](const auto& item) { return item.first.starts_with(prefix); });
    for (const auto& [name, entry] : file.entries())
      if (!is_buffer(name)) entries_[bare && name != names.head + ".weight" ? prefix + name : name] = entry;
    drop_equal_head(names, *model.config().tied);
  }

  // An Error unless names and shapes are those of the specs.
  void check_match(const std::vector<SafetensorsSpec>& specs) const {
    std::vector<std::string> missing, other;
    std::set<std::string> unexpected;
    for (const auto& [name, entry] : entries_) unexpected.insert(name);
    for (const SafetensorsSpec& spec : specs) {
      unexpected.erase(spec.name);
      const auto found = entries_.find(spec.name);
      if (found == entries_.end())
        missing.push_back(spec.name);
      else if (found->second->shape != spec.shape)
        other.push_back(spec.name + " " + in_brackets(found->second->shape) + " for " +
                        in_brackets(spec.shape));
    }
    std::string problems = listed("missing", missing) + listed("of another shape", other) +
                           listed("unexpected", {unexpected.begin(), unexpected.end()});
    check(problems.empty(), path_, ": the weights are not those of config.json", problems);
  }

  const SafetensorsEntry& operator[](const std::string& name) const { return *entries_.at(name); }

 private:
  static bool is_buffer(const std::string& name) {
    return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
           name.ends_with(".attn.masked_bias");
  }
  void drop_equal_head(const ParamNames& names, bool tied) {
    const auto head = entries_.find(names.head + ".weight"),
               embedding = entries_.find(names.embedding + ".weight");
    if (!tied || head == entries_.end() || embedding == entries_.end()) return;
    const SafetensorsEntry &a = *head->second, &b = *embedding->second;
    if (a.dtype == b.dtype && a.shape == b.shape &&
        std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin()))
      entries_.erase(head);
  }
  static std::string in_brackets(const std::vector<int64_t>& shape) {
    std::string text;
    for (const int64_t extent : shape) text += str(text.empty() ? "" : ", ", extent);
    return str('[', text, ']');
  }
  static std::string listed(const char* what, const std::vector<std::string>& names) {
    constexpr size_t kShown = 6;
    if (names.empty()) return "";
    std::string text = str("; ", names.size(), ' ', what, ": ");
    for (size_t i = 0; i < std::min(kShown, names.size()); ++i) text += str(i ? ", " : "", names[i]);
    return names.size() > kShown ? text + ", ..." : text;
  }

  std::string path_;
  std::map<std::string, const SafetensorsEntry*> entries_;
};

fs::path last_run(const std::string& start) {
  for (fs::path folder = fs::absolute(start).lexically_normal();; folder = folder.parent_path()) {
    const fs::path file = folder / "runs" / "latest";
    if (std::ifstream in(file); in.good()) {
      std::string line;
      std::getline(in, line);
      check(!line.empty(), file.string(), ": is empty, must hold the path of a run's folder");
      return folder / line;
    }
    check(folder.has_relative_path(), "no folder was given, and there is no runs/latest in ",
          fs::absolute(start).lexically_normal().string(),
          " or above: train a model first, or name its folder");
  }
}

}  // namespace

std::string find_model_folder(const std::string& given, const std::string& start) {
  const fs::path folder = given.empty() ? last_run(start) : fs::path(given);
  check(fs::is_directory(folder), folder.string(), ": no such folder");
  for (const fs::path& candidate : {folder, folder / "model"})
    if (fs::exists(candidate / "config.json")) return candidate.string();
  fail(
      str(folder.string(), ": neither a model's folder (no config.json) nor a run's (no model/config.json)"));
}

ParamTensors allocate_parameters(const Model& model, DType dtype, Arena& arena) {
  ParamTensors parameters;
  for (const ParamList& unit : model.units()) {
    parameters.emplace_back();
    for (const ParamSpec& spec : unit.specs()) parameters.back().push_back(arena.alloc(dtype, spec.shape));
  }
  return parameters;
}

std::vector<SafetensorsSpec> weight_specs(const Model& model, DType dtype) {
  std::vector<SafetensorsSpec> specs;
  for (const ParamList& unit : model.units())
    for (const ParamSpec& spec : unit.specs())
      specs.push_back({.name = spec.name, .dtype = dtype, .shape = dims_of(spec.shape)});
  return specs;
}

void read_model_weights(const std::string& folder, const Model& model, const ParamTensors& parameters,
                        Stream& stream) {
  const TensorFolder file(folder, kWeightsStem);
  const std::string& path = file.path();
  const NamedWeights weights(file, model);
  weights.check_match(weight_specs(model, DType::f32));
  for (size_t u = 0; u < parameters.size(); ++u)
    for (size_t i = 0; i < parameters[u].size(); ++i) {
      const Tensor& dst = parameters[u][i];
      const SafetensorsEntry& entry = weights[model.units()[u].specs()[i].name];
      if (!dst.device.is_cuda()) {
        read_tensor(path, dst, entry);
        continue;
      }
      const Memory staging(Device::cpu(), dst.bytes());
      const Tensor host{staging.data(), dst.dtype, dst.shape, Device::cpu()};
      read_tensor(path, host, entry);
      copy(stream, dst, host);
      stream.sync();
    }
}

}  // namespace flatshard
