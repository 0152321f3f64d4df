#include "tools/inference/chat_session.h"

#include <algorithm>
#include <csignal>
#include <istream>
#include <ostream>
#include <string>

namespace flatshard {
namespace {

volatile std::sig_atomic_t interrupted = 0;

// While it lives, SIGINT does not end the program.
class Interrupts {
 public:
  Interrupts() { sigaction(SIGINT, nullptr, &before_); }
  ~Interrupts() { sigaction(SIGINT, &before_, nullptr); }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // From now on it makes the reading of a line fail.
  void end_reading() { handle(0); }
  // From now on it sets `interrupted`; a second one, such as during a long prompt, does end the program.
  void end_answer() { handle(SA_RESTART | SA_RESETHAND); }

 private:
  static void handle(int flags) {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = flags;
    sigaction(SIGINT, &action, nullptr);
  }
  struct sigaction before_ {};
};

// Streams an answer to the conversation and returns it.
std::string answer(Generator& generator, const TextCodec& codec, const Sampler& sampler, int64_t most_tokens,
                   const std::vector<int32_t>& prompt, std::ostream& out) {
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
  Interrupts interrupts;
  const auto read_line = [&](std::string& line) {
    interrupts.end_reading();
    streams.out << "> " << std::flush;
    return static_cast<bool>(std::getline(streams.in, line));
  };
  for (std::string line; read_line(line);) {
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
    interrupts.end_answer();
    conversation.add("assistant", answer(generator, codec, draws, most_tokens, prompt, streams.out));
  }
  streams.out << std::endl;
}

}  // namespace flatshard
