#pragma once
// The losses of whole answers, as functions of sums of log-probabilities, with their derivatives. The same
// code runs on the CPU and on the GPU. c and r are ln p of the chosen and the rejected answer, summed over
// their tokens; |c| and |r| are their numbers of tokens; 0 marks the reference:
//   dpo     -(1 - s) ln sigmoid(b h) - s ln sigmoid(-b h)     h = (c - c0) - (r - r0), s: label smoothing
//   ipo     (h - 1 / (2 b))^2                                 h = (c - c0) / |c| - (r - r0) / |r|
//   orpo    -b ln sigmoid(h)                                  h = ln odds(c / |c|) - ln odds(r / |r|)
//   kto     1 - sigmoid(y b (g - z))                          g = c - c0, y: 1 of a good answer, -1 of a bad
//                                                             one, z: baseline, what answers gain at random
//   policy  -min(q a, clip(q) a) + k (e^d - d - 1)            q = p / p of the sampling, clipped to
//                                                             [1 - low, 1 + high], a: advantage, d = l0 - l
// ln odds(x) = x - ln(1 - e^x). The policy's loss is for one token, with l = ln p; q may be the ratio of the
// whole answer instead, the geometric mean over its tokens.

#include <cmath>

#include "kernels/answer_loss.h"

namespace flatshard::answers {

template <class T>
constexpr T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}
template <class T>
constexpr T log_sigmoid(T x) {
  return (x < 0 ? x : T(0)) - std::log1p(std::exp(x < 0 ? x : -x));
}

// ln p of an answer, minus the reference's if the loss has one, and the number of tokens.
template <class T>
struct Answer {
  T logprob, tokens;
};

// A loss, and its derivatives by the ln p of a token in the chosen and in the rejected answer.
template <class T>
struct PairTerm {
  T loss, chosen, rejected;
};

template <class T>
constexpr PairTerm<T> dpo(Answer<T> c, Answer<T> r, T beta, T smoothing) {
  const T x = beta * (c.logprob - r.logprob);
  const T slope = beta * (smoothing * sigmoid(x) - (1 - smoothing) * sigmoid(-x));
  return {-(1 - smoothing) * log_sigmoid(x) - smoothing * log_sigmoid(-x), slope, -slope};
}

template <class T>
constexpr PairTerm<T> ipo(Answer<T> c, Answer<T> r, T beta) {
  const T x = c.logprob / c.tokens - r.logprob / r.tokens - 1 / (2 * beta);
  return {x * x, 2 * x / c.tokens, -2 * x / r.tokens};
}

template <class T>
constexpr PairTerm<T> orpo(Answer<T> c, Answer<T> r, T beta) {
  const T mean_c = c.logprob / c.tokens, mean_r = r.logprob / r.tokens;
  const T not_c = -std::expm1(mean_c), not_r = -std::expm1(mean_r);  // 1 - p
  const T x = mean_c - mean_r - (std::log(not_c) - std::log(not_r));
  const T slope = -beta * sigmoid(-x);
  return {-beta * log_sigmoid(x), slope / (not_c * c.tokens), -slope / (not_r * r.tokens)};
}

// A loss, and its derivative by the ln p of a token.
template <class T>
struct TokenTerm {
  T loss, slope;
};

template <class T>
constexpr TokenTerm<T> kto(T gain, T baseline, T label, T beta) {
  const T s = sigmoid(label * beta * (gain - baseline));
  return {1 - s, -label * beta * s * (1 - s)};
}

template <class T>
constexpr PairTerm<T> of_pair(LossKind kind, T beta, T smoothing, Answer<T> c, Answer<T> r) {
  if (kind == LossKind::ipo) return ipo(c, r, beta);
  if (kind == LossKind::orpo) return orpo(c, r, beta);
  return dpo(c, r, beta, smoothing);
}

// A loss, and its derivative by the logarithm of the ratio. `clipped` tells whether clipping makes the
// derivative 0.
template <class T>
struct RatioTerm {
  T loss, slope;
  bool clipped;
};

template <class T>
constexpr RatioTerm<T> clipped_ratio(T log_ratio, T advantage, T low, T high) {
  const T ratio = std::exp(log_ratio);
  const T held = ratio < 1 - low ? 1 - low : ratio > 1 + high ? 1 + high : ratio;
  const bool clipped = held * advantage < ratio * advantage;
  return {-(clipped ? held : ratio) * advantage, clipped ? T(0) : -ratio * advantage, clipped};
}

template <class T>
constexpr TokenTerm<T> divergence(T logprob, T reference) {
  const T d = reference - logprob;
  return {std::expm1(d) - d, -std::expm1(d)};
}

}  // namespace flatshard::answers
