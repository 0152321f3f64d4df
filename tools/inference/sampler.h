#pragma once
// Sampling of the next token. First the logits of tokens that the text already contains are penalized, as in
// Hugging Face transformers: z / repetition_penalty if z > 0, else z * repetition_penalty. Candidates are
// then all tokens by descending logit z, ties by token number; these apply in order:
//   temperature   p_i = exp(z_i / temperature) / sum; 0 takes the first candidate
//   top_k         the first top_k candidates remain
//   top_p         after renormalization, the fewest first candidates whose sum reaches top_p
//   min_p         then the candidates whose p is at least min_p times the p of the first
// and one of the remaining candidates is drawn with probability p. The draw is a function of (seed, length of
// the text) alone.

#include <cstdint>
#include <span>
#include <vector>

namespace flatshard {

struct SamplerOptions {
  double temperature = 1.0;
  int64_t top_k = 0;   // 0: no limit
  double top_p = 1.0;  // 1: no limit
  double min_p = 0;    // 0: no limit
  double repetition_penalty = 1.0;
  uint64_t seed = 1;
};

class Sampler {
 public:
  // An Error names an option that is out of range.
  explicit Sampler(const SamplerOptions& options);

  // Returns the token that follows `text`. A logit that is NaN or +infinity is an Error.
  int32_t sample(std::span<const float> logits, std::span<const int32_t> text) const;

  struct Candidate {
    int32_t token;
    double probability;
  };
  // The remaining candidates, most likely first. Their probabilities sum to 1. The temperature must be
  // positive.
  std::vector<Candidate> candidates(std::span<const float> logits, std::span<const int32_t> text = {}) const;

 private:
  std::vector<float> penalized(std::span<const float> logits, std::span<const int32_t> text) const;

  SamplerOptions options_;
};

}  // namespace flatshard
