#pragma once
// The initial values of a parameter, a function of seed, name and global index only:
//   y[i] = value   or   value * normal(first + i)   or   value * (2 uniform(first + i) - 1)
// computed in fp32 and rounded to the dtype of y. y may be any range of the parameter, starting at `first`.

#include <functional>

#include "runtime/param.h"
#include "runtime/rng.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct InitParam {
  Tensor y;  // any shape
  Init init;
  RandomStream random;  // made from the run's seed and the parameter's name
  int64_t first = 0;    // index of the first element of y in the parameter
};

void init_param(Stream& stream, const InitParam& a);

// Writes elements [first, first + y.size()) of a parameter's initial values to y, in y's dtype, either as
// work on the stream or synchronously after the stream's earlier work.
using InitialValues =
    std::function<void(Stream& stream, const ParamSpec& spec, int64_t first, const Tensor& y)>;

// The values that the ParamSpecs define, which depend only on seed, name and index.
InitialValues random_values(uint64_t seed);

double min_bytes(const InitParam& a);
double flops(const InitParam& a);

namespace cuda {
void init_param(Stream& stream, const InitParam& a);
}  // namespace cuda

}  // namespace flatshard
