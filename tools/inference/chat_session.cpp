#include "tools/inference/chat_session.h"

#include <algorithm>
#include <csignal>
#include <istream>
#include <ostream>
#include <string>

#include "runtime/text.h"
#include "tools/inference/prompt_images.h"

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

class Session {
 public:
  Session(Generator& generator, const TextCodec& codec, const SamplerOptions& sampler, int64_t most_tokens,
          const ChatStreams& streams)
      : generator_(generator),
        codec_(codec),
        sampler_(sampler),
        most_tokens_(most_tokens),
        streams_(streams) {}

  // Forgets the messages and begins with a system message, or without one if it is "". An Error if the chat
  // template has none.
  void begin(const std::string& system) {
    const Conversation next = beginning(system);
    Conversation probe = next;
    probe.add("user", "Hello");
    codec_.encode(probe);
    system_ = system;
    conversation_ = next;
  }

  void hold() {
    for (std::string line; read_line(line);) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.find_first_not_of(" \t") == line.npos) continue;
      if (!line.starts_with('/')) {
        answer(line);
      } else if (line.starts_with("//")) {
        answer(line.substr(1));
      } else if (!obey(line)) {
        return;
      }
    }
    streams_.out << std::endl;
  }

 private:
  static Conversation beginning(const std::string& system) {
    Conversation conversation;
    if (!system.empty()) conversation.add("system", system);
    return conversation;
  }

  bool read_line(std::string& line) {
    interrupts_.end_reading();
    streams_.out << "> " << std::flush;
    return static_cast<bool>(std::getline(streams_.in, line));
  }

  // Whether the conversation continues after a command.
  bool obey(const std::string& line) {
    const size_t end = line.find_first_of(" \t"), begin = line.find_first_not_of(" \t", end);
    const std::string command = line.substr(0, end), rest = begin == line.npos ? "" : line.substr(begin);
    if (command == "/image" && !rest.empty()) {
      show_image(rest);
    } else if (command == "/system" && !rest.empty()) {
      replace_system(rest);
    } else if (command == "/system") {
      streams_.out << (system_.empty() ? "no system message" : system_) << std::endl;
    } else if (!rest.empty() || (command != "/exit" && command != "/reset" && command != "/help")) {
      streams_.err << "there is no command \"" << line << "\"; nothing was sent to the model:\n"
                   << kChatCommands << std::flush;
    } else if (command == "/help") {
      streams_.out << kChatCommands << std::flush;
    } else if (command == "/reset") {
      conversation_ = beginning(system_);
    }
    return command != "/exit" || !rest.empty();
  }

  void replace_system(const std::string& system) {
    try {
      begin(system);
    } catch (const Error& error) {
      streams_.err << printable(error.what()) << "; the conversation continues as before" << std::endl;
    }
  }

  // Shows an image with the next message.
  void show_image(const std::string& path) {
    try {
      check(codec_.image_input().has_value(), "the model reads no images");
      facts_of({.path = path});
      images_.push_back({.path = path});
      streams_.out << "shown with the next message" << std::endl;
    } catch (const Error& error) {
      streams_.err << printable(error.what()) << "; the conversation continues without it" << std::endl;
    }
  }

  PromptImages images() const {
    return codec_.image_input() ? read_images(*codec_.image_input(), conversation_) : PromptImages{};
  }

  // Streams the model's answer to a message.
  void answer(const std::string& message) {
    const size_t images_before = conversation_.images.size();
    conversation_.add("user", message, images_);
    find_image_sizes(conversation_);
    const std::vector<int32_t> prompt = codec_.encode(conversation_);
    const int64_t capacity = generator_.options().capacity, space = capacity - std::ssize(prompt);
    if (space <= 0) {
      conversation_.messages.pop_back();
      conversation_.images.resize(images_before);
      streams_.err << "the conversation would have " << prompt.size()
                   << " tokens, which leaves no space for an answer in the context of " << capacity
                   << ": start a new one with /reset, or give a larger --context" << std::endl;
      return;
    }
    interrupts_.end_answer();
    generator_.read_changes(0, prompt, images());
    images_.clear();
    TextCodec::Stream text(codec_);
    std::string all;
    const auto print = [&](const std::string& piece) {
      all += piece;
      streams_.out << piece << std::flush;
    };
    continue_text(generator_, std::min(most_tokens_, space), sampler_, codec_.end_tokens(),
                  [&](int64_t, int32_t token) {
                    print(text.take(token));
                    return interrupted == 0;
                  });
    print(text.rest());
    streams_.out << std::endl;
    conversation_.add("assistant", all);
  }

  Generator& generator_;
  const TextCodec& codec_;
  Sampler sampler_;
  int64_t most_tokens_;
  ChatStreams streams_;
  Interrupts interrupts_;
  std::string system_;
  Conversation conversation_;
  std::vector<ImageSource> images_;  // of the next message
};

}  // namespace

const char* const kChatCommands =
    "/image PATH   show the model this image with the next message\n"
    "/system TEXT  begin a new conversation with this system message; without TEXT: show it\n"
    "/reset        forget the conversation, except its system message\n"
    "/help         show these commands\n"
    "/exit         end the program\n"
    "//TEXT        send /TEXT to the model\n";

void run_chat(Generator& generator, const TextCodec& codec, const SamplerOptions& sampler,
              int64_t most_tokens, const std::string& system, const ChatStreams& streams) {
  Session session(generator, codec, sampler, most_tokens, streams);
  session.begin(system);
  session.hold();
}

}  // namespace flatshard
