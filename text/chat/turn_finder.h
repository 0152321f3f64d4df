#pragma once
// Finds the assistant's turns in a rendering of a template without {% generation %} blocks. A turn goes from
// the end of the generation prompt to the special token that ends it. Both follow from the positions of the
// message's data in the rendering and from a few renderings of the conversation's beginnings. Turns do not
// depend on each other.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace flatshard {

// The tokens of a rendering, and the bytes at which they begin.
struct RenderedTokens {
  const std::vector<int32_t>& ids;
  const std::vector<uint32_t>& begins;
  size_t first;  // the first token of the text
};

class TurnFinder {
 public:
  using Render = std::function<Rendering(const Conversation& conversation, bool add_generation_prompt)>;

  // The arguments must outlive the object.
  TurnFinder(const Conversation& conversation, const Rendering& rendering, const RenderedTokens& tokens,
             const Tokenizer& tokenizer, Render render);

  // Returns the spans of the turns, which are messages of the assistant. Removes the turns that it finds.
  std::vector<TextSpan> find(std::vector<size_t>& turns);

  // Whether the template renders turns differently once there are later messages. A rendering takes as long
  // as the conversation, so of many turns it tries only a few.
  bool rewrites_history(std::vector<size_t> turns) const;

  // The reason why a turn was not found, for an error: "it shows no text of the message".
  std::string why_hidden(size_t turn) const;

 private:
  using Texts = std::vector<std::optional<TextSpan>>;  // the text of each message
  struct Tail {
    size_t bytes = 0;
    bool is_whole = false;  // the turn ends after these bytes
  };

  Rendering try_render(const Conversation& conversation, bool add_generation_prompt) const;
  Rendering beginning(const Conversation& until);
  std::string prompt_after(const Conversation& conversation, const std::string& text) const;
  void find_generation_prompt(size_t last_turn);
  size_t common_with_prompt(size_t at) const;
  void place_empty_turns(const std::vector<size_t>& turns, Texts& texts) const;
  std::optional<TextSpan> span_of(size_t turn, TextSpan text);
  bool may_run_on(const TextSpan& text) const;
  size_t begin_of(const TextSpan& text) const;
  Tail tail_of(size_t turn, TextSpan& text);
  Tail tail_before(size_t next, size_t turn, TextSpan text);
  std::optional<TextSpan> hidden_turn(size_t turn, const Texts& texts);
  bool is_shown(size_t turn) const;
  size_t token_at(size_t byte) const;
  size_t token_end(size_t token) const;

  const Conversation& conversation_;
  const Rendering& rendering_;
  const RenderedTokens tokens_;
  const Tokenizer& tokenizer_;
  Render render_;
  std::string prompt_;                 // text that asks for an answer
  size_t rendered_ = 0;                // bytes of rendered beginnings
  size_t opening_ = 0;                 // bytes of the special token that begins the prompt
  std::map<std::string, Tail> tails_;  // keyed by the template text between messages
};

}  // namespace flatshard
