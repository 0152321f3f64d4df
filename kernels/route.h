#pragma once
// The router of a mixture of experts: which k of E experts each of N tokens goes to, and their weights.
//   experts   those with the k largest logits of a token, falling; equal ones by index; NaN last
//   weights   p[e] = softmax(logits)[e] of the chosen, or with `normalized` p[e] divided by their sum
// With `sigmoid`, an expert's score is s[e] = sigmoid(logits[e]). Then
//   experts   those with the k largest s[e] + bias[e], in the same order; with several groups only experts of
//             the `top_groups` groups whose two largest sums are largest together, equal ones by index
//   weights   scale s[e], or with `normalized` scale s[e] / (sum of s of the chosen + 1e-20)
// With `in_turn`, token t goes to the k experts from t k on, modulo E: even loads, for benchmarks. Padding
// (runtime/targets.h) goes to none: its experts are -1, its weights and the gradient of its logits 0.
//
// The gradient of the logits is that of the weights, plus those of two auxiliary losses of all other rows:
//   balance   sum_e f_e mean p[e], where f_e is the share of rows that e was chosen by, from counts
//   z         mean lse^2, with lse = ln sum exp(logits)
// Each has a factor, which includes the mean.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

// How experts are chosen and weighed.
struct RouteRule {
  bool sigmoid = false, normalized = false;
  // Only with sigmoid. Groups are equally large, of at least two experts.
  int64_t groups = 1, top_groups = 1;
  float scale = 1;
  bool in_turn = false;
};
inline constexpr int64_t kMostRouteGroups = 32;

struct RouteForward {
  Tensor experts;    // (N, k) i32
  Tensor weights;    // (N, k) f32
  Tensor logits;     // (N, E) f32
  Tensor targets{};  // (N) i32; empty: there is no padding
  Tensor bias{};     // (E) f32, or empty; only with sigmoid
  RouteRule rule{};
};

struct RouteBackward {
  Tensor dlogits;           // (N, E) f32
  Tensor dweights;          // (N, k) f32
  Tensor experts, weights;  // of the forward pass
  Tensor logits;            // (N, E) f32
  RouteRule rule{};
  // (2) f32: the gradient of p[e] is the first times counts[e], that of lse twice the second times lse.
  // Empty: no auxiliary losses; so with sigmoid.
  Tensor factors{};
  Tensor counts{};  // (E) i32: how often each expert was chosen; empty: the first factor is not used
  // (N, 2) f32, to which both losses of each row are added, with their factors; empty: they are not.
  Tensor losses{};
};

void route_forward(Stream& stream, const RouteForward& a);
void route_backward(Stream& stream, const RouteBackward& a);

double min_bytes(const RouteForward& a);
double min_bytes(const RouteBackward& a);
double flops(const RouteForward& a);
double flops(const RouteBackward& a);

namespace cuda {
void route_forward(Stream& stream, const RouteForward& a);
void route_backward(Stream& stream, const RouteBackward& a);
}  // namespace cuda

}  // namespace flatshard
