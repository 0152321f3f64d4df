#pragma once
// Sampling of the next token. Candidates are all tokens by descending logit z, ties by token number; these
// apply in order:
//   temperature   p_i = exp(z_i / temperature) / sum
//   top_k         the first top_k candidates remain
//   top_p         after renormalization, the fewest first candidates whose sum reaches top_p
// and one of the remaining candidates is drawn with probability p. The draw is a function of (seed, position)
// alone. greedy takes the first candidate.

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
  // An Error names an option that is out of range.
  explicit Sampler(const SamplerOptions& options);

  // The token that follows `position` tokens. A logit that is NaN or +infinity is an Error.
  int32_t sample(std::span<const float> logits, int64_t position) const;

  struct Candidate {
    int32_t token;
    double probability;
  };
  // The remaining candidates, most likely first; their probabilities sum to 1.
  std::vector<Candidate> candidates(std::span<const float> logits) const;

 private:
  SamplerOptions options_;
};

}  // namespace flatshard
