#include "text/tokenizer/decoder.h"

#include <algorithm>
#include <utility>

#include "runtime/utf8.h"

namespace flatshard {

void Decoder::add(int32_t id, State& state, std::string* text) const {
  static const Token kNoToken{kReplacementCharacter, false};
  const Token& token = id >= 0 && id < std::ssize(tokens_) ? tokens_[static_cast<size_t>(id)] : kNoToken;
  const bool first = !std::exchange(state.started, true);
  if (token.is_byte) {
    state.pending += token.text;
    return;
  }
  if (rules_.kind == Kind::bytes) return add_bytes(token.text, state, text);
  end_run(state, text);
  if (!first && !rules_.separator.empty()) add_text(rules_.separator, state, text);
  if (rules_.replacement.empty()) return add_text(token.text, state, text);
  const std::string_view all = token.text;
  for (size_t at = 0; at < all.size();) {
    const size_t next = std::min(all.find(rules_.replacement, at), all.size());
    add_text(all.substr(at, next - at), state, text);
    if (next < all.size() && !(first && rules_.drops_first)) add_text(" ", state, text);
    at = next + rules_.replacement.size();
  }
}

void Decoder::finish(State& state, std::string* text) const {
  if (rules_.kind == Kind::bytes && !state.pending.empty()) add_text(kReplacementCharacter, state, text);
  if (rules_.kind == Kind::bytes) state.pending.clear();
  end_run(state, text);
}

void Decoder::add_text(std::string_view piece, State& state, std::string* text) const {
  while (state.strips < rules_.most_strips && piece.starts_with(rules_.strip)) {
    piece.remove_prefix(rules_.strip.size());
    ++state.strips;
  }
  if (!piece.empty()) state.strips = rules_.most_strips;  // the start has passed
  *text += piece;
}

void Decoder::add_bytes(std::string_view piece, State& state, std::string* text) const {
  if (!state.pending.empty()) piece = state.pending += piece;
  size_t at = 0;
  while (at < piece.size()) {
    const size_t valid = valid_utf8_prefix(piece.substr(at));
    add_text(piece.substr(at, valid), state, text);
    at += valid;
    if (at == piece.size()) break;
    const Utf8Front front = utf8_front(piece.substr(at));
    if (front.cut_off) break;
    add_text(kReplacementCharacter, state, text);
    at += front.length;
  }
  state.pending = std::string(piece.substr(at));
}

void Decoder::end_run(State& state, std::string* text) const {
  if (state.pending.empty()) return;
  const std::string run = std::exchange(state.pending, "");
  if (valid_utf8_prefix(run) == run.size()) return add_text(run, state, text);
  for (size_t i = 0; i < run.size(); ++i) add_text(kReplacementCharacter, state, text);
}

}  // namespace flatshard
