#pragma once
// A conversation in a terminal: reads a line of the user from `in`, streams the model's answer to `out`, and
// keeps the history. A line that begins with "/" is a command (kChatCommands), and "//" begins a message with
// one slash; the end of the input ends the conversation, too. SIGINT (Ctrl-C) ends the answer in progress,
// and between answers the conversation. A conversation that outgrows the generator's capacity, an image that
// cannot be read, a message that the chat template rejects, and an unknown command are reported on `err`; the
// conversation continues without them.

#include <iosfwd>
#include <string>

#include "hub/text_codec.h"
#include "tools/inference/continuation.h"

namespace flatshard {

struct ChatStreams {
  std::istream& in;
  std::ostream &out, &err;
};

extern const char* const kChatCommands;  // a line for each command and its effect

// The conversation is text 0 of the generator, and begins with the system message `system`, unless that is
// "". An answer has at most `most_tokens` tokens.
void run_chat(Generator& generator, const TextCodec& codec, const SamplerOptions& sampler,
              int64_t most_tokens, const std::string& system, const ChatStreams& streams);

}  // namespace flatshard
