#pragma once
// Which token comes next. From logits z the candidates are all tokens, the likeliest first, equal ones by
// number; then in this order
//   temperature   p_i = exp(z_i / temperature) / sum
//   top_k         the first top_k candidates remain
//   top_p         of what remains, renormalised, the first whose sum reaches top_p, at least one
// and one of the rest is drawn, by p. The draw is a function of (seed, position): the same text continues the
// same way, whatever was drawn before. greedy takes the first candidate.

#include <cstdint>
#include <span>
#include <vector>

namespace flatshard {

struct SamplerOptions {
  bool greedy = false;
  double temperature = 1.0;
  int64_t top_k = 0;   // 0: all
  double top_p = 1.0;  // 1: all
  uint64_t seed = 1;
};

class Sampler {
 public:
  // An Error names an option that is out of bounds.
  explicit Sampler(const SamplerOptions& options);

  // The token that follows `position` tokens. A logit that is NaN or +infinity is an Error.
  int32_t sample(std::span<const float> logits, int64_t position) const;

  struct Candidate {
    int32_t token;
    double probability;
  };
  // Those that can be drawn, the likeliest first; their probabilities sum to 1.
  std::vector<Candidate> candidates(std::span<const float> logits) const;

 private:
  SamplerOptions options_;
};

}  // namespace flatshard
