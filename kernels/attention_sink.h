#pragma once
// Sinks of attention (attention.h): a learned score for each query head, which takes part in the softmax of
// every query and has no value. Attention without the sink gave o and lse; with it they become, in place,
//   lse' = ln(e^lse + e^sink)      o' = o e^(lse - lse')
// The backward pass of attention needs no change, if it reads o' and lse'. For the sinks,
//   dsink = -sum_i e^(sink - lse'_i) <do_i, o'_i>      over all queries i of the head
// A query that attends to no key has lse' = sink and o' = 0.

#include "kernels/attention.h"

namespace flatshard {

struct AttentionSinkForward {
  Heads o;       // (T, Hq, D), replaced
  Tensor lse;    // (Hq, T) f32, replaced
  Tensor sinks;  // (Hq), of o's dtype
};

struct AttentionSinkBackward {
  Tensor dsinks;    // (Hq) f32
  Heads grad_o, o;  // (T, Hq, D)
  Tensor lse;       // (Hq, T) f32
  Tensor sinks;     // (Hq)
  bool accumulate = false;
};

void attention_sink_forward(Stream& stream, const AttentionSinkForward& a);
void attention_sink_backward(Stream& stream, const AttentionSinkBackward& a);

double min_bytes(const AttentionSinkForward& a);
double min_bytes(const AttentionSinkBackward& a);
double flops(const AttentionSinkForward& a);
double flops(const AttentionSinkBackward& a);

namespace cuda {
void attention_sink_forward(Stream& stream, const AttentionSinkForward& a);
void attention_sink_backward(Stream& stream, const AttentionSinkBackward& a);
}  // namespace cuda

}  // namespace flatshard
