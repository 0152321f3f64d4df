#pragma once
// A conversation in a terminal: reads a line of the user from `in`, streams the model's answer to `out`, and
// keeps the history. /reset forgets the history; /exit or the end of the input ends the conversation. SIGINT
// (Ctrl-C) ends the answer in progress, and between answers the conversation. A conversation that outgrows
// the generator's capacity is reported on `err`, and continues without the last message.

#include <iosfwd>

#include "tools/inference/continuation.h"
#include "tools/inference/text_codec.h"

namespace flatshard {

struct ChatStreams {
  std::istream& in;
  std::ostream &out, &err;
};

// Text 0 of the generator is the conversation. An answer has at most `most_tokens` tokens.
void run_chat(Generator& generator, const TextCodec& codec, const SamplerOptions& sampler,
              int64_t most_tokens, const ChatStreams& streams);

}  // namespace flatshard
