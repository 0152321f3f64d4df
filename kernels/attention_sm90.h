#pragma once
// Attention by the instructions of sm_90 (Hopper), for 16-bit heads. Builds for other GPUs only have
// attention_sm90_missing.cpp instead.

#include "kernels/attention.h"

namespace flatshard::cuda {

// Whether these kernels are in the build, the current GPU is of sm_90, and no other tier was asked for.
bool has_sm90();
// Whether they compute these shapes.
bool runs_on_sm90(const AttentionForward& a);
bool runs_on_sm90(const AttentionBackward& a);
void attention_forward_sm90(Stream& stream, const AttentionForward& a);
// `terms`: of attention_backward.
void attention_backward_sm90(Stream& stream, const AttentionBackward& a, const Tensor& terms);

}  // namespace flatshard::cuda
