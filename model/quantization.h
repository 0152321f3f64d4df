#pragma once
// 4-bit weights of frozen linear layers (kernels/four_bit.h): the choice of the layers, and the parts of a
// weight (quantized_part.h) as parameters, which are sharded, gathered and offloaded like any frozen
// parameter. GPT-2's weights, stored as (in, out), are quantized as (out, in).

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
  std::optional<Precision> compute{};  // dtype of products; empty: the run's compute dtype
  std::vector<std::string> skip{};     // layers that are not quantized
  bool fp32_norms = false;
};

// Returns whether a parameter is a part of a quantized weight.
inline bool is_quantized_part(const ParamSpec& spec) {
  return spec.role == ParamRole::quantized || (spec.role == ParamRole::weight && spec.dtype);
}

// The dtype of quant.compute.
std::optional<DType> compute_dtype(const QuantConfig& quant);

// The parameters of one quantized weight.
class QuantizedParams {
 public:
  QuantizedParams() = default;
  // Declares the parts of path.weight. `init` describes the initial values, which are quantized. `share` is
  // as in ParamSpec.
  QuantizedParams(ParamList& params, const std::string& path, const FourBitWeight& weight, const Init& init,
                  double share = 1);

  FourBitMatrix matrix(const ParamView& p) const;
  const FourBitFormat& format() const { return weight_.format; }

 private:
  FourBitWeight weight_;
  std::array<ParamId, 6> ids_{};  // one for each part
};

struct QuantizedChoice {
  std::map<std::string, FourBitFormat> weights;  // keys are the paths of layers
  std::vector<std::string> warnings;             // entries of quant.skip that match nothing
};

// Every linear layer of the blocks is quantized, except the layers that quant.skip and lora.save_modules
// name. They name layers, or modules that contain them, by whole components of a path.
QuantizedChoice choose_quantized(const QuantConfig& quant, const LoraConfig& lora, const Model& model);

}  // namespace flatshard
