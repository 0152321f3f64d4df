#pragma once
// Continues prompts in batches. Prompts of any lengths share the texts of a generator: when a continuation
// ends, the next prompt takes its text. A continuation is a function of its request alone, so on a CPU its
// tokens do not depend on the number of texts.

#include <functional>
#include <span>
#include <vector>

#include "tools/inference/generator.h"
#include "tools/inference/sampler.h"

namespace flatshard {

struct Request {
  std::vector<int32_t> prompt;
  int64_t most_tokens = 0;  // prompt and continuation together must not exceed the generator's capacity
  Sampler sampler{{}};
  std::function<PromptImages()> images{};  // reads the prompt's images when it begins; empty: no images
};

struct Continuation {
  std::vector<int32_t> tokens;  // new tokens, without the end token
  bool ended = false;           // whether an end token ended it
};

// Receives each token of the request with this index as soon as it is sampled. Returns false to end the
// continuation.
using TakeToken = std::function<bool(int64_t request, int32_t token)>;

// A continuation ends before the first of the end tokens.
std::vector<Continuation> continue_prompts(Generator& generator, std::span<const Request> requests,
                                           std::span<const int32_t> end_tokens, const TakeToken& take = {});

// Continues text 0 of the generator from its current state.
Continuation continue_text(Generator& generator, int64_t most_tokens, const Sampler& sampler,
                           std::span<const int32_t> end_tokens, const TakeToken& take);

}  // namespace flatshard
