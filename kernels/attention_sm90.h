#pragma once
// Attention with the instructions of sm_90 (Hopper), for 16-bit heads. A build without code for sm_90
// contains attention_sm90_missing.cpp instead.

#include "kernels/attention_one_pass.h"

namespace flatshard::cuda {

// Returns whether the build has these kernels, the current GPU is an sm_90, and no other tier is selected.
bool has_sm90();
// Returns whether these kernels support the shapes of `a`.
bool runs_on_sm90(const AttentionForward& a);
bool runs_on_sm90(const AttentionBackward& a);
void attention_forward_sm90(Stream& stream, const AttentionForward& a);
// `terms` is the scratch of attention_backward.
void attention_backward_sm90(Stream& stream, const AttentionBackward& a, const Tensor& terms);
// The same in one pass, for calls with is_one_pass().
void attention_one_pass_sm90(Stream& stream, const AttentionBackward& a, const Tensor& terms,
                             const OnePassScratch& scratch);

}  // namespace flatshard::cuda
