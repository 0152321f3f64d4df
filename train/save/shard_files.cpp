#include "train/save/shard_files.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "checkpoint/float_values.h"
#include "hub/initial_values.h"
#include "hub/peft_names.h"
#include "model/names.h"
#include "runtime/memory.h"
#include "train/save/train_state.h"

namespace flatshard {
namespace {

constexpr int64_t kBlock = ValueWriter::kBlock;
constexpr int64_t kWidth = sizeof(float);  // bytes of a value in a file

// A block on the host, as fp32 and in the shard's dtype.
struct Block {
  std::vector<float> values = std::vector<float>(static_cast<size_t>(kBlock));
  std::vector<float> raw = values;  // large enough for any dtype

  Tensor like(const Tensor& part) { return {raw.data(), part.dtype, part.shape, Device::cpu()}; }
};

bool is_in(const StateSpec& state, std::string_view set) { return state.set == set; }

// Calls visit(tensor name, first element, part of the shard), block by block, for all that this rank owns of
// the unit in these files.
template <class Visit>
void each_range(const ShardFiles& files, const Owned& owned, Visit&& visit) {
  const ShardedUnit& unit = *owned.unit;
  const auto visit_blocks = [&](const std::string& name, int64_t first, const Tensor& values) {
    for (int64_t at = 0; at < values.size(); at += kBlock)
      visit(files.tensor_name(name), first + at, values.slice(at, std::min(at + kBlock, values.size())));
  };
  const auto walk = [&](const FlatLayout& layout, const Tensor& shard) {
    for (const auto& [param, first, values] : layout.values_in_shard(unit.shard_index(), shard))
      if (const std::string& name = unit.params()[param].name; files.params.contains(name))
        visit_blocks(name, first, values);
  };
  if (files.weights) {
    if (unit.has_gradients()) walk(unit.trainable(), owned.p);
    if (!owned.frozen.empty()) walk(unit.frozen(), owned.frozen);
    return;
  }
  if (!unit.has_gradients()) return;
  const Tensor* tensor = owned.state.data();
  for (const StateSpec& state : unit.optimizer().states()) {
    const Tensor& values = *tensor++;
    if (!is_in(state, files.stem)) continue;
    for (const auto& [param, first, begin, size] : unit.trainable().pieces(unit.shard_index())) {
      const int64_t from = begin / state.block;
      visit_blocks(unit.params()[param].name + state.suffix, first / state.block,
                   values.slice(from, from + state.size(size)));
    }
  }
}

// Codes are stored as they are, everything else as fp32.
bool is_code(const Tensor& part) { return part.dtype == DType::u8; }
int64_t stored_width(const Tensor& part) { return is_code(part) ? 1 : kWidth; }

// A part of a shard, in host memory.
Tensor fetch_raw(const Tensor& part, Block& block, Stream& stream) {
  if (!part.device.is_cuda()) return part;
  const Tensor here = block.like(part);
  copy(stream, here, part);
  stream.sync();
  return here;
}

// The values of a part of a shard as fp32, in host memory.
const float* fetch(const Tensor& part, Block& block, Stream& stream) {
  const Tensor here = fetch_raw(part, block, stream);
  if (here.dtype == DType::f32) return here.as<float>();
  visit_float(here.dtype, [&]<class T>() {
    const T* from = here.as<T>();
    std::transform(from, from + here.size(), block.values.begin(), [](T x) { return static_cast<float>(x); });
  });
  return block.values.data();
}

// Advice about moments that differ only in being 8-bit or fp32, which is decided for each unit.
std::string wrap_advice(const SafetensorsEntry& found, const SafetensorsSpec& expected) {
  const bool coded = expected.dtype == DType::u8 || found.dtype == safetensors_name(DType::u8);
  return coded && found.shape == expected.shape
             ? ": units of few trained elements keep fp32 moments; restore parallel.wrap as it was"
             : "";
}

void check_finite(const std::string& tensor, int64_t first, std::span<const float> values,
                  const char* advice) {
  if (const std::optional<int64_t> at = first_non_finite(values))
    fail(str(tensor, ": element ", first + *at, " is ", values[static_cast<size_t>(*at)],
             ", must be finite: ", advice));
}

}  // namespace

std::string ShardFiles::tensor_name(const std::string& parameter) const {
  return adapts.empty() ? parameter : adapter_tensor_name(peft_name(adapts, parameter));
}

std::vector<ShardFiles> shard_files(Engine& engine, bool grown) {
  const Model& model = engine.model();
  const bool adapters = !model.config().adapters.empty();
  const ParamNames& params = param_names(model.config().family);
  std::map<std::string, const OptimizerKind*> trained, stored;
  for (const ParamList& list : model.param_lists())
    for (const ParamSpec& spec : list.specs()) {
      const bool has_vocab =
          spec.name == params.embedding + ".weight" || spec.name == params.head + ".weight";
      if (spec.trainable || !adapters || (grown && has_vocab)) stored.emplace(spec.name, nullptr);
    }
  for (const ParamList& unit : engine.whole_wrapping().units()) {
    const FlatLayout trainable = engine.trainable_layout(unit);
    const OptimizerKind& optimizer = unit_optimizer(trainable, engine.unit_options());
    for (const FlatLayout::Extent& extent : trainable.extents())
      trained.emplace(unit[extent.param].name, &optimizer);
  }
  const std::string adapts = adapters ? model.config().family : "";
  std::vector<ShardFiles> files{{adapters ? kAdapterStem : kWeightsStem, true, adapts, std::move(stored)}};
  for (const char* set : engine.unit_options().optimizer->sets())
    files.push_back({set, false, adapts, trained});
  return files;
}

std::vector<const char*> stems_in(const std::filesystem::path& checkpoint) {
  namespace fs = std::filesystem;
  std::vector<const char*> stems{fs::exists(checkpoint / kAdapterConfigName) ? kAdapterStem : kWeightsStem};
  const fs::path state = checkpoint / TrainState::kFileName;
  if (!fs::exists(state)) return stems;
  const std::vector<const char*> sets = optimizer_of(read_train_state(state.string())).sets();
  stems.insert(stems.end(), sets.begin(), sets.end());
  return stems;
}

std::vector<const char*> all_stems() {
  std::vector<const char*> stems{kWeightsStem, kAdapterStem};
  const std::vector<const char*> sets = state_sets();
  stems.insert(stems.end(), sets.begin(), sets.end());
  return stems;
}

TensorFolderLayout layout_of(const ShardFiles& files, const Model& model, int64_t most_bytes) {
  std::vector<SafetensorsSpec> specs;
  for (SafetensorsSpec& spec : weight_specs(model, DType::f32)) {
    const auto param = files.params.find(spec.name);
    if (param == files.params.end()) continue;
    spec.name = files.tensor_name(spec.name);
    if (files.weights) {
      specs.push_back(spec);
      continue;
    }
    const int64_t elements =
        std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
    for (const StateSpec& state : param->second->states())
      if (is_in(state, files.stem))
        specs.push_back({.name = spec.name + state.suffix,
                         .dtype = state.dtype,
                         .shape = state.block == 1 ? spec.shape : std::vector{state.size(elements)}});
  }
  const bool joins = files.weights && files.adapts.empty();
  return {files.stem, std::move(specs), most_bytes,
          joins ? written_joined(model.config()) : std::vector<JoinedTensor>{}};
}

void write_shards(TensorFolderWriter& writer, const ShardFiles& files, const std::vector<Owned>& owned,
                  Stream& stream) {
  Block block;
  for (const Owned& of_unit : owned)
    each_range(files, of_unit, [&](const std::string& name, int64_t first, const Tensor& part) {
      if (is_code(part)) return writer.write(name, first, fetch_raw(part, block, stream).data, part.size());
      const float* const values = fetch(part, block, stream);
      check_finite(str(files.stem, ": ", name), first, {values, static_cast<size_t>(part.size())},
                   "the run has diverged; lower optimizer.lr");
      writer.write(name, first, values, part.size());
    });
}

void check_tensors(const TensorFolder& source, const TensorFolderLayout& layout) {
  std::set<std::string> expected;
  for (const SafetensorsSpec& spec : layout.specs()) {
    expected.insert(spec.name);
    const SafetensorsEntry* const entry = source.find(spec.name);
    check(entry != nullptr, source.path(), ": ", spec.name,
          " is missing; the model expects it with the shape ", in_brackets(spec.shape));
    check(entry->shape == spec.shape && entry->dtype == safetensors_name(spec.dtype), source.path(), ": ",
          spec.name, " is ", entry->dtype, ' ', in_brackets(entry->shape), ", must be ",
          safetensors_name(spec.dtype), ' ', in_brackets(spec.shape), wrap_advice(*entry, spec));
  }
  for (const auto& [name, entry] : source.entries())
    check(expected.contains(name), source.path(), ": ", name, " is not in the model");
}

void add_shards(const TensorFolderReader& source, const ShardFiles& files, const ShardedUnit& unit,
                ReadStream& bytes) {
  each_range(files, owned_of(unit), [&](const std::string& name, int64_t first, const Tensor& part) {
    const int64_t width = stored_width(part);
    bytes.add(source.range(name, first * width, part.size() * width));
  });
}

void read_shards(TensorFolderReader& source, const ShardFiles& files, const ShardedUnit& unit, bool sum,
                 ReadStream& bytes, Stream& stream) {
  ValueWriter writer;
  Block block;
  each_range(files, owned_of(unit), [&](const std::string& name, int64_t first, const Tensor& part) {
    if (is_code(part)) {
      const Tensor here = part.device.is_cuda() ? block.like(part) : part;
      source.read(bytes, name, first, part.size(), here.data, sum);
      if (!part.device.is_cuda()) return;
      copy(stream, part, here);
      return stream.sync();
    }
    writer.write(stream, part, [&](float* values) {
      source.read(bytes, name, first * kWidth, part.size() * kWidth, values, sum);
      check_finite(str(source.folder().path(), ": ", name), first, {values, static_cast<size_t>(part.size())},
                   "the run that wrote it had diverged");
    });
  });
}

void collect_sums(World& world, const std::vector<BlockSums*>& files) {
  size_t next = world.rank() == 0 ? files.size() : 0;
  world.collect(
      [&] {  // a text is the number of a file, a space, and its sums
        std::string mine;
        while (mine.empty() && next < files.size()) mine = files[next++]->packed();
        return mine.empty() ? "" : str(next - 1, ' ', mine);
      },
      [&](int, const std::string& theirs) {
        const size_t space = theirs.find(' ');
        files.at(std::stoul(theirs.substr(0, space)))->merge(std::string_view(theirs).substr(space + 1));
      });
}

}  // namespace flatshard
