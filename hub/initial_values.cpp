#include "hub/initial_values.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "hub/quantized/quantizing_source.h"
#include "model/model.h"
#include "model/names.h"
#include "model/quantization.h"
#include "model/quantized_layers.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

constexpr int64_t kBlockBytes = int64_t{1} << 20;

// The weights of the same model without quantization, from which the quantized weights are made.
class Source {
 public:
  Source(InitialValues values, ModelConfig config)
      : values_(std::move(values)), stream_(streams_.add("initial values")) {
    const auto quantized = std::exchange(config.quantized, {});
    Arena planning("model", Device::cpu());
    const Model plain(config, planning);
    FourBitWeights weights = four_bit_weights(plain, quantized);
    for (const ParamList& list : plain.param_lists())
      for (const ParamSpec& spec : list.specs())
        if (weights.contains(spec.name)) specs_.emplace(spec.name, spec);
    const auto read = [this](const std::string& name, int64_t first, int64_t count, float* to) {
      values_(stream_, specs_.at(name), first, tensor_of(to, {count}));
      stream_.sync();
    };
    parts_.emplace(read, std::move(weights), param_names(config.family).transposed_weights);
  }

  void read_bytes(const std::string& part, int64_t first, int64_t count, std::byte* to) {
    parts_->read_bytes(part, first, count, to);
  }

 private:
  InitialValues values_;
  StreamSet streams_{Device::cpu()};
  Stream& stream_;
  std::map<std::string, ParamSpec> specs_;
  std::optional<QuantizingSource> parts_;
};

}  // namespace

void ValueWriter::write(Stream& stream, const Tensor& to, const std::function<void(float*)>& make) {
  Tensor here = to;
  if (to.device.is_cuda()) {
    raw_.resize(static_cast<size_t>(kBlock));  // enough for any dtype
    here = {raw_.data(), to.dtype, to.shape, Device::cpu()};
  }
  visit_float(here.dtype, [&]<class T>() {
    T* const target = here.as<T>();
    if constexpr (std::is_same_v<T, float>) {
      make(target);
    } else {
      values_.resize(static_cast<size_t>(kBlock));
      make(values_.data());
      std::transform(values_.begin(), values_.begin() + here.size(), target, [](float x) { return T(x); });
    }
  });
  if (!to.device.is_cuda()) return;
  copy(stream, to, here);
  stream.sync();
}

InitialValues values_read_by(ReadValues read) {
  return [read = std::move(read), writer = ValueWriter()](Stream& stream, const ParamSpec& spec,
                                                          int64_t first, const Tensor& y) mutable {
    stream.sync();  // pending work of the stream must not overwrite the values written here
    for (int64_t at = 0; at < y.size(); at += ValueWriter::kBlock) {
      const int64_t count = std::min(ValueWriter::kBlock, y.size() - at);
      writer.write(stream, y.slice(at, at + count),
                   [&](float* values) { read(spec.name, first + at, count, values); });
    }
  };
}

InitialValues bytes_read_by(ReadBytes read) {
  return [read = std::move(read), block = std::vector<std::byte>()](Stream& stream, const ParamSpec& spec,
                                                                    int64_t first, const Tensor& y) mutable {
    if (stream.planning()) return;
    stream.sync();  // pending work of the stream must not overwrite the values written here
    const int64_t width = size_of(y.dtype);
    if (!y.device.is_cuda()) {
      read(spec.name, first * width, y.bytes(), static_cast<std::byte*>(y.data));
      return;
    }
    block.resize(static_cast<size_t>(kBlockBytes));
    for (int64_t at = 0; at < y.size(); at += kBlockBytes / width) {
      const Tensor to = y.slice(at, std::min(y.size(), at + kBlockBytes / width));
      read(spec.name, (first + at) * width, to.bytes(), block.data());
      copy(stream, to, {block.data(), to.dtype, to.shape, Device::cpu()});
      stream.sync();
    }
  };
}

InitialValues with_parts(InitialValues values, InitialValues parts) {
  return [values = std::move(values), parts = std::move(parts)](Stream& stream, const ParamSpec& spec,
                                                                int64_t first, const Tensor& y) {
    (is_quantized_part(spec) ? parts : values)(stream, spec, first, y);
  };
}

InitialValues quantized_values(InitialValues values, const ModelConfig& config) {
  if (config.quantized.empty()) return values;
  const auto source = std::make_shared<Source>(values, config);
  return with_parts(
      values, bytes_read_by([source](const std::string& name, int64_t first, int64_t count, std::byte* to) {
        source->read_bytes(name, first, count, to);
      }));
}

}  // namespace flatshard
