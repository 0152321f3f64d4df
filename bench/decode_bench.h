#pragma once
// Times the decode path of a model folder, one pass that appends a token to each of several texts, against
// the least time that memory allows:
//   floor = (bytes of the weights + bytes of the cached keys and values) / read bandwidth
// The bandwidth is measured in this process, between the passes. Only a few rows of an untied embedding are
// read, so its bytes do not count.

#include <string>
#include <vector>

#include "bench/ceiling.h"
#include "bench/measure.h"
#include "runtime/dtype.h"

namespace flatshard::bench {

struct DecodeResult {
  DType dtype = DType::f32;
  int64_t texts = 0, context = 0;  // texts in a pass, and tokens in each of them at the start
  Spread seconds{};                // seconds per pass
  int passes = 0;
  bool disturbed = false;  // other programs used the processors in most passes
  double weight_bytes = 0, cache_bytes = 0;
  double read_rate = 0;  // bytes/s, the median of the samples between the passes

  double floor_seconds() const { return (weight_bytes + cache_bytes) / read_rate; }
  double tokens_per_second() const { return static_cast<double>(texts) / seconds.median; }
};

// Reads the folder once for each dtype, and measures every number of texts at every context for `seconds`.
std::vector<DecodeResult> measure_decode(const std::string& folder, const std::vector<DType>& dtypes,
                                         double seconds);

std::string decode_table(const std::string& folder, const std::vector<DecodeResult>& results);

}  // namespace flatshard::bench
