#pragma once
// Continues prompts in batches. Prompts of any lengths share the slots of a generator: where one ends, the
// next one begins. A continuation is a function of its request alone, so on a CPU its tokens do not depend on
// the number of slots.

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
  std::function<PromptImages()> images{};  // those of the prompt, read when it begins; empty: none
};

struct Continuation {
  std::vector<int32_t> tokens;  // without the end token
  bool ended = false;           // by an end token
};

// Receives each token of the request with this index as soon as it is sampled; false ends the continuation.
using TakeToken = std::function<bool(int64_t request, int32_t token)>;

// A continuation ends before the first of the end tokens.
std::vector<Continuation> continue_prompts(Generator& generator, std::span<const Request> requests,
                                           std::span<const int32_t> end_tokens, const TakeToken& take = {});

// The same for text 0 of the generator as it is.
Continuation continue_text(Generator& generator, int64_t most_tokens, const Sampler& sampler,
                           std::span<const int32_t> end_tokens, const TakeToken& take);

}  // namespace flatshard
