#pragma once
// Quantizes weights while they are read: returns any range of bytes of any part of a quantized weight, given
// a function that reads the values of the weight.
//
// A range of codes or of fp32 absmax needs only the blocks that it touches; nested scales need the absmax of
// all blocks. The absmax of consecutive blocks is kept while the same weight is requested. So if the parts of
// a weight are read one after another, each from its beginning, its values are read and quantized once. All
// ranks read ranges of the same quantized weight.

#include <cstddef>

#include "hub/quantized/read_values.h"
#include "model/quantized_part.h"
#include "runtime/stream.h"

namespace flatshard {

class QuantizingSource {
 public:
  // `read` reads the values of P.weight by that name. With `transposed` it reads them as (in, out), while the
  // weight is quantized as (out, in).
  QuantizingSource(ReadValues read, FourBitWeights weights, bool transposed);

  const FourBitWeights& weights() const { return weights_; }
  // Reads bytes [first, first + count) of a part, such as P.weight.absmax. An Error names the weight if it
  // has a value that is not finite.
  void read_bytes(const std::string& part, int64_t first, int64_t count, std::byte* to);

 private:
  // The last requested weight.
  struct Current {
    FourBitWeights::const_iterator weight;
    int64_t first_block = 0;
    std::vector<float> absmax{};  // absmax of the blocks from first_block on
    // Empty until requested.
    std::vector<uint8_t> scale_codes{};
    std::vector<float> nested_absmax{};
    float nested_offset = 0;
  };

  void read_values(int64_t first, int64_t count);
  void quantize(int64_t first_block, int64_t blocks);
  void keep_absmax(int64_t first_block);
  void need_absmax(int64_t first_block, int64_t end_block);
  void need_nested();
  void read_codes(int64_t first, int64_t count, std::byte* to);

  ReadValues read_;
  FourBitWeights weights_;
  bool transposed_;
  StreamSet streams_;
  Stream& stream_;
  Current current_;
  // The last quantized blocks.
  std::vector<float> values_, absmax_;
  std::vector<uint8_t> codes_;
};

}  // namespace flatshard
