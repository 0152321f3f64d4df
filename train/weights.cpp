#include "train/weights.h"

#include <algorithm>
#include <array>

#include "runtime/sha256.h"

namespace flatshard {
namespace {

void add_as_f32(Sha256& hash, const Tensor& values) {
  std::array<float, 4096> block;
  visit_float(values.dtype, [&]<class T>() {
    const T* v = values.as<T>();
    for (int64_t i = 0; i < values.size(); i += block.size()) {
      const int64_t n = std::min<int64_t>(block.size(), values.size() - i);
      for (int64_t k = 0; k < n; ++k) block[static_cast<size_t>(k)] = static_cast<float>(v[i + k]);
      hash.add(block.data(), static_cast<size_t>(n) * sizeof(float));
    }
  });
}

}  // namespace

std::string weights_hash(Engine& engine) {
  Sha256 hash;
  for (ShardedUnit& unit : engine.units()) {
    unit.prefetch(engine.gather());  // frozen parameters have no masters
    unit.acquire(engine.compute());
    std::vector<Tensor> masters = unit.values();
    if (unit.has_gradients()) {
      const Tensor whole = unit.gather_masters(engine.compute());
      for (const FlatLayout::Place& place : unit.trainable().places())
        masters[static_cast<size_t>(place.param.index)] = whole.slice(place.begin, place.begin + place.size);
    }
    engine.compute().sync();
    if (engine.rank() == 0)
      for (const Tensor& m : masters) add_as_f32(hash, m);
    unit.release(engine.compute());
  }
  return engine.rank() == 0 ? hash.hex() : "";
}

}  // namespace flatshard
