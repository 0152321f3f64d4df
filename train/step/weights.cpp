#include "train/step/weights.h"

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "runtime/memory.h"
#include "runtime/sha256.h"

namespace flatshard {
namespace {

std::string hash_of(const Tensor& values) {
  Sha256 hash;
  if (!is_float(values.dtype)) {
    hash.add(values.data, static_cast<size_t>(values.bytes()));
    return hash.hex();
  }
  std::array<float, 4096> block;
  visit_float(values.dtype, [&]<class T>() {
    const T* v = values.as<T>();
    for (int64_t i = 0; i < values.size(); i += block.size()) {
      const int64_t n = std::min<int64_t>(block.size(), values.size() - i);
      for (int64_t k = 0; k < n; ++k) block[static_cast<size_t>(k)] = static_cast<float>(v[i + k]);
      hash.add(block.data(), static_cast<size_t>(n) * sizeof(float));
    }
  });
  return hash.hex();
}

// The values in host memory: the tensor itself, or a copy in `workspace`.
Tensor on_host(const Tensor& values, Memory& workspace, Stream& stream) {
  if (!values.device.is_cuda()) return values;
  if (workspace.bytes() < values.bytes()) workspace = Memory(Device::cpu(), values.bytes());
  const Tensor here{workspace.data(), values.dtype, values.shape, Device::cpu()};
  copy(stream, here, values);
  stream.sync();
  return here;
}

}  // namespace

// The hash does not depend on how parameters are wrapped into units.
std::string weights_hash(Engine& engine, World& world) {
  std::ostringstream mine;  // a line for each parameter of this stage
  Memory workspace;
  for (ShardedUnit& unit : engine.units()) {
    unit.prefetch(engine.gather());  // frozen parameters have no masters
    unit.acquire(engine.compute());
    std::vector<Tensor> masters = unit.values();
    if (unit.has_gradients()) {
      const Tensor whole = unit.gather_masters(engine.compute());
      for (const FlatLayout::Extent& extent : unit.trainable().extents())
        masters[static_cast<size_t>(extent.param.index)] =
            whole.slice(extent.begin, extent.begin + extent.size);
    }
    engine.compute().sync();
    for (size_t i = 0; i < masters.size() && engine.data_rank() == 0; ++i)
      mine << unit.params().specs()[i].name << ' '
           << hash_of(on_host(masters[i], workspace, engine.compute())) << '\n';
    unit.release(engine.compute());
  }
  std::map<std::string, std::string> hashes;  // hashes of all stages, by parameter name
  for (const std::string& text : world.all_gather_texts(mine.str(), "weight hashes")) {
    std::istringstream lines(text);
    for (std::string name, digest; lines >> name >> digest;) hashes[name] = digest;
  }
  if (engine.rank() != 0) return "";
  Sha256 hash;
  for (const ParamList& list : engine.model().param_lists())
    for (const ParamSpec& spec : list.specs())
      hash.add(hashes.at(spec.name).data(), hashes.at(spec.name).size());
  return hash.hex();
}

}  // namespace flatshard
