#pragma once
// 4-bit weights of frozen linear layers (kernels/four_bit.h): which layers have them, and their parts
// (quantized_part.h) as parameters, which are sharded, gathered and offloaded like any frozen parameter.
// GPT-2's weights, stored as (in, out), are quantized as (out, in).

#include <array>
#include <map>
#include <string>
#include <vector>

#include "model/quantized_part.h"
#include "runtime/param.h"
#include "runtime/precision.h"

namespace flatshard {

class Model;
struct LoraConfig;

struct QuantConfig {
  std::optional<FourBitKind> base{};  // empty: weights are not quantized
  int64_t block = 64;
  bool nested = false;
  std::optional<Precision> compute{};  // of products; empty: that of the run
  std::vector<std::string> skip{};     // layers that are not quantized
  bool fp32_norms = false;
};

// Whether a parameter is a part of a quantized weight.
inline bool is_quantized_part(const ParamSpec& spec) {
  return spec.role == ParamRole::quantized || (spec.role == ParamRole::weight && spec.dtype);
}

// quant.compute as a dtype.
std::optional<DType> compute_dtype(const QuantConfig& quant);

// The parameters of one quantized weight.
class QuantizedParams {
 public:
  QuantizedParams() = default;
  // Declares the parts of path.weight. `init` are the values that are quantized.
  QuantizedParams(ParamList& params, const std::string& path, const FourBitWeight& weight, const Init& init);

  FourBitMatrix matrix(const ParamView& p) const;
  const FourBitFormat& format() const { return weight_.format; }

 private:
  FourBitWeight weight_;
  std::array<ParamId, 6> ids_{};  // by part
};

struct QuantizedChoice {
  std::map<std::string, FourBitFormat> weights;  // by the path of the layer
  std::vector<std::string> warnings;             // entries of quant.skip that match nothing
};

// Every linear layer of the blocks is quantized, except those in quant.skip and lora.save_modules, which name
// layers, or modules that contain them, by whole components of a path.
QuantizedChoice choose_quantized(const QuantConfig& quant, const LoraConfig& lora, const Model& model);

}  // namespace flatshard
