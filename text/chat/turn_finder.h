#pragma once
// Finds the assistant's turns in a rendering of a template without {% generation %} blocks. A turn goes from
// the end of the generation prompt to the special token that ends it. Both follow from the positions of the
// message's data in the rendering and from a few renderings of the conversation's beginnings. Turns do not
// depend on each other.

#include <functional>
#include <string>
#include <vector>

#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace flatshard {

// A conversation, its rendering, and the rendering's tokens with the bytes at which they begin.
struct RenderedConversation {
  const Conversation& conversation;
  const Rendering& rendering;
  const std::vector<int32_t>& ids;
  const std::vector<uint32_t>& begins;
  size_t first;  // the first token of the text
  const Tokenizer& tokenizer;
  // Renders other conversations in the same way.
  std::function<Rendering(const Conversation& conversation, bool add_generation_prompt)> render;
};

// Returns the spans of the turns, which are messages of the assistant. Removes the turns that it finds.
std::vector<TextSpan> find_turns(const RenderedConversation& shown, std::vector<size_t>& turns);

// Whether the template renders turns differently once there are later messages. A rendering takes as long as
// the conversation, so of many turns it tries only a few.
bool rewrites_history(const RenderedConversation& shown, std::vector<size_t> turns);

// The reason why a turn was not found, for an error: "it shows no text of the message".
std::string why_hidden(const Rendering& rendering, size_t turn);

}  // namespace flatshard
