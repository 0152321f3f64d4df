#include "tools/inference/chat_session.h"

#include <algorithm>
#include <csignal>
#include <istream>
#include <ostream>
#include <string>

#include "hub/prompt_images.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

volatile std::sig_atomic_t interrupted = 0;

// While an object exists, SIGINT does not end the program.
class Interrupts {
 public:
  Interrupts() { sigaction(SIGINT, nullptr, &before_); }
  ~Interrupts() { sigaction(SIGINT, &before_, nullptr); }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // From now on SIGINT interrupts the reading of a line.
  void end_reading() { handle(0); }
  // From now on SIGINT sets `interrupted`; a second SIGINT, for example during a long prompt, ends the
  // program.
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

  // Starts a new conversation with a system message, or without one if it is "". Throws an Error if the chat
  // template has no system messages.
  void begin(const std::string& system) {
    const Conversation next = beginning(system);
    Conversation probe = next;
    probe.add("user", "Hello");
    codec_.encode(probe);
    system_ = system;
    forget();
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

  void forget() {
    conversation_ = beginning(system_);
    next_.clear();
    images_ = {};
  }

  bool read_line(std::string& line) {
    interrupts_.end_reading();
    streams_.out << "> " << std::flush;
    return static_cast<bool>(std::getline(streams_.in, line));
  }

  // Executes a command. Returns whether the conversation continues.
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
      forget();
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

  // Shows an image with the next message. Its file is only read here.
  void show_image(const std::string& path) {
    try {
      check(codec_.image_input().has_value(), "the model reads no images");
      const ImageSource source{.path = path};
      const ImageFacts facts = facts_of(source);
      PromptImages all = images_;
      append_image(*codec_.image_input(), path, read_image(source), facts, all);
      images_ = std::move(all);
      next_.push_back({.source = source, .size = facts.size});
      streams_.out << "shown with the next message" << std::endl;
    } catch (const Error& error) {
      streams_.err << printable(error.what()) << "; the conversation continues without it" << std::endl;
    }
  }

  Conversation with_message(const std::string& message) const {
    Conversation conversation = conversation_;
    std::vector<ImageSource> sources;
    for (const ShownImage& image : next_) sources.push_back(image.source);
    conversation.add("user", message, sources);
    for (size_t i = 0; i < next_.size(); ++i)
      conversation.images[conversation_.images.size() + i].size = next_[i].size;
    return conversation;
  }

  // Streams the model's answer to a message.
  void answer(const std::string& message) {
    const Conversation next = with_message(message);
    std::vector<int32_t> prompt;
    try {
      prompt = codec_.encode(next);
    } catch (const Error& error) {
      streams_.err << printable(error.what()) << "; the conversation continues as before" << std::endl;
      return;
    }
    const int64_t capacity = generator_.options().capacity, space = capacity - std::ssize(prompt);
    if (space <= 0) {
      streams_.err << "the conversation would have " << prompt.size()
                   << " tokens, which leaves no space for an answer in the context of " << capacity
                   << ": start a new one with /reset, or give a larger --context" << std::endl;
      return;
    }
    interrupts_.end_answer();
    generator_.read_changes(0, prompt, images_);
    conversation_ = next;
    next_.clear();
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
  std::vector<ShownImage> next_;  // the images of the next message
  PromptImages images_;           // images of all messages, and of the next one
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
