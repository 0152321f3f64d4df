#include "tools/inference/continuation.h"

#include <algorithm>
#include <optional>

namespace flatshard {
namespace {

// The continuation in progress in one text of the generator.
struct Running {
  int64_t request, most_tokens;
  const Sampler* sampler;
};

class Batch {
 public:
  Batch(Generator& generator, std::span<const int32_t> end_tokens, const TakeToken& take,
        std::vector<Continuation>& results)
      : generator_(generator),
        end_tokens_(end_tokens),
        take_(take),
        results_(results),
        running_(static_cast<size_t>(generator.options().texts)) {}

  void start(int64_t text, const Running& running) {
    if (running.most_tokens > 0) running_[static_cast<size_t>(text)] = running;
  }
  std::optional<int64_t> free_text() const {
    const auto found = std::find(running_.begin(), running_.end(), std::nullopt);
    if (found == running_.end()) return {};
    return found - running_.begin();
  }
  // Appends a token to every continuation. Returns false if there are none.
  bool step() {
    std::vector<NextToken> next;
    for (size_t text = 0; text < running_.size(); ++text)
      if (running_[text]) next.push_back({static_cast<int64_t>(text), 0});
    if (next.empty()) return false;
    sample(next);
    std::erase_if(next, [this](const NextToken& n) { return ends(n); });
    generator_.append(next);
    return true;
  }

 private:
  void sample(std::vector<NextToken>& next) const {
    for (NextToken& n : next) {
      const Running& running = *running_[static_cast<size_t>(n.text)];
      n.token = running.sampler->sample(generator_.logits(n.text), generator_.tokens(n.text));
    }
  }

  // Records a token. Returns whether the continuation ends with it.
  bool ends(const NextToken& next) {
    std::optional<Running>& running = running_[static_cast<size_t>(next.text)];
    Continuation& result = results_[static_cast<size_t>(running->request)];
    result.ended = std::find(end_tokens_.begin(), end_tokens_.end(), next.token) != end_tokens_.end();
    bool continues = !result.ended;
    if (continues) {
      result.tokens.push_back(next.token);
      continues = std::ssize(result.tokens) < running->most_tokens;
      if (take_ && !take_(running->request, next.token)) continues = false;
    }
    if (!continues) running.reset();
    return !continues;
  }

  Generator& generator_;
  std::span<const int32_t> end_tokens_;
  const TakeToken& take_;
  std::vector<Continuation>& results_;
  std::vector<std::optional<Running>> running_;  // by text of the generator
};

void check_length(const Generator& generator, int64_t prompt_tokens, int64_t most_tokens) {
  const int64_t capacity = generator.options().capacity;
  check(most_tokens >= 0 && most_tokens <= capacity - prompt_tokens, "a prompt of ", prompt_tokens,
        " tokens and ", most_tokens, " more exceed the capacity of ", capacity, " tokens");
}

}  // namespace

std::vector<Continuation> continue_prompts(Generator& generator, std::span<const Request> requests,
                                           std::span<const int32_t> end_tokens, const TakeToken& take) {
  for (const Request& request : requests)
    check_length(generator, std::ssize(request.prompt), request.most_tokens);
  std::vector<Continuation> results(requests.size());
  Batch batch(generator, end_tokens, take, results);
  size_t next = 0;
  do {
    while (next < requests.size()) {
      const std::optional<int64_t> text = batch.free_text();
      if (!text) break;
      const Request& request = requests[next];
      generator.read_prompt(*text, request.prompt, request.images ? request.images() : PromptImages{});
      batch.start(*text, {static_cast<int64_t>(next), request.most_tokens, &request.sampler});
      ++next;
    }
  } while (batch.step() || next < requests.size());
  return results;
}

Continuation continue_text(Generator& generator, int64_t most_tokens, const Sampler& sampler,
                           std::span<const int32_t> end_tokens, const TakeToken& take) {
  check_length(generator, std::ssize(generator.tokens(0)), most_tokens);
  std::vector<Continuation> results(1);
  Batch batch(generator, end_tokens, take, results);
  batch.start(0, {0, most_tokens, &sampler});
  while (batch.step()) continue;
  return results.front();
}

}  // namespace flatshard
