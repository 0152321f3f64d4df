#include "train/inference/chat_session.h"

#include <algorithm>
#include <csignal>
#include <istream>
#include <ostream>
#include <string>

namespace flatshard {
namespace {

volatile std::sig_atomic_t interrupted = 0;

// While it lives, SIGINT sets `interrupted` in place of ending the program.
class InterruptsAnswer {
 public:
  InterruptsAnswer() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, &before_);
  }
  ~InterruptsAnswer() { sigaction(SIGINT, &before_, nullptr); }
  InterruptsAnswer(const InterruptsAnswer&) = delete;
  InterruptsAnswer& operator=(const InterruptsAnswer&) = delete;

 private:
  struct sigaction before_ {};
};

// Streams an answer to the conversation and returns it.
std::string answer(Generator& generator, const TextCodec& codec, const Sampler& sampler, int64_t most_tokens,
                   const std::vector<int32_t>& prompt, std::ostream& out) {
  const InterruptsAnswer interrupts;
  generator.read_changes(0, prompt);
  TextCodec::Stream text(codec);
  std::string all;
  const auto print = [&](const std::string& piece) {
    all += piece;
    out << piece << std::flush;
  };
  const int64_t space = generator.options().capacity - std::ssize(prompt);
  continue_text(generator, std::min(most_tokens, space), sampler, codec.end_tokens(),
                [&](int64_t, int32_t token) {
                  print(text.take(token));
                  return interrupted == 0;
                });
  print(text.rest());
  out << std::endl;
  return all;
}

}  // namespace

void run_chat(Generator& generator, const TextCodec& codec, const SamplerOptions& sampler,
              int64_t most_tokens, const ChatStreams& streams) {
  const Sampler draws(sampler);
  const int64_t capacity = generator.options().capacity;
  Conversation conversation;
  for (std::string line; streams.out << "> " << std::flush, std::getline(streams.in, line);) {
    if (line == "/exit") return;
    if (line == "/reset") conversation = {};
    if (line == "/reset" || line.find_first_not_of(" \t\r") == line.npos) continue;
    conversation.add("user", line);
    const std::vector<int32_t> prompt = codec.encode(conversation);
    if (std::ssize(prompt) >= capacity) {
      conversation.messages.pop_back();
      streams.err << "the conversation would have " << prompt.size()
                  << " tokens, which leaves no space for an "
                  << "answer in the context of " << capacity
                  << ": start a new one with /reset, or give a larger --context" << std::endl;
      continue;
    }
    conversation.add("assistant", answer(generator, codec, draws, most_tokens, prompt, streams.out));
  }
  streams.out << std::endl;
}

}  // namespace flatshard
