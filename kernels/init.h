#pragma once
// The first values of a parameter, a function of seed, name and global index only:
//   y[i] = value   or   value * normal(first + i)   or   value * (2 uniform(first + i) - 1)
// made in fp32 and rounded to y's dtype. y may be any range of the parameter; `first` says where it begins.

#include "runtime/param.h"
#include "runtime/rng.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct InitParam {
  Tensor y;  // any shape
  Init init;
  RandomStream random;  // of the run's seed and the parameter's name
  int64_t first = 0;    // the index in the whole parameter of y's first element
};

void init_param(Stream& stream, const InitParam& a);

double min_bytes(const InitParam& a);
double flops(const InitParam& a);

namespace cuda {
void init_param(Stream& stream, const InitParam& a);
}  // namespace cuda

}  // namespace flatshard
