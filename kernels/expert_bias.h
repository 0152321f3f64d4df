#pragma once
// Biases of experts, whose rows are sorted by expert (expert_rows.h). Only rows of tokens take part: the
// others keep their values, and add nothing.
//
// add_expert_bias:     x[r] += bias[e]                              for the rows r of each expert e
// expert_bias_backward: dbias[e] = sum_r w_r dx[r], in order of r   where w_r is the row's weight, or 1
//                       dweights[t, j] += <dx[r], bias[e]>          where r = places[t, j], e = experts[t, j]

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct AddExpertBias {
  Tensor x;        // (R, C)
  Tensor bias;     // (E, C) of x's dtype
  Tensor offsets;  // (E + 1) i32
  Tensor rows;     // (R) i32: the token of each row; -1: none
};

struct ExpertBiasBackward {
  Tensor dbias{};           // (E, C) f32; empty: not computed
  Tensor dweights{};        // (N, k) f32; empty: the output of experts is not weighed
  Tensor dx;                // (R, C)
  Tensor bias{};            // (E, C) of dx's dtype; the next three are read with dweights
  Tensor weights{};         // (N, k) f32
  Tensor places{};          // (N, k) i32
  Tensor experts{};         // (N, k) i32
  Tensor offsets;           // (E + 1) i32
  Tensor rows;              // (R) i32
  bool accumulate = false;  // dbias +=
};

void add_expert_bias(Stream& stream, const AddExpertBias& a);
void expert_bias_backward(Stream& stream, const ExpertBiasBackward& a);

double min_bytes(const AddExpertBias& a);
double min_bytes(const ExpertBiasBackward& a);
double flops(const AddExpertBias& a);
double flops(const ExpertBiasBackward& a);

namespace cuda {
void add_expert_bias(Stream& stream, const AddExpertBias& a);
void expert_bias_backward(Stream& stream, const ExpertBiasBackward& a);
}  // namespace cuda

}  // namespace flatshard
