#include "text/words/added_tokens.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/utf8.h"
#include "text/words/unicode.h"

namespace flatshard {
namespace {

uint64_t edge(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<unsigned char>(byte); }

bool has(std::string_view text, size_t at, unsigned sets) {
  return (char_sets()[next_code_point(text, at)] & sets) != 0;
}

bool is_plain(const AlignedView& text, TextRange range, std::span<const TextRange> plain) {
  const size_t begin = text.origin(range.begin), last = text.origin(range.end - 1);
  const auto found =
      std::partition_point(plain.begin(), plain.end(), [&](TextRange r) { return r.end <= begin; });
  return found != plain.end() && found->begin <= last;
}

}  // namespace

void AddedTokenFinder::add(const std::string& text, const AddedToken& token, const std::string& path) {
  check(!text.empty() && text.size() <= kLongest, path, ": the added token ", token.id, " has ", text.size(),
        " bytes, must have 1 to ", kLongest);
  uint32_t node = 0;
  for (const char byte : text) {
    const auto [found, is_new] = edges_.try_emplace(edge(node, byte), static_cast<uint32_t>(ends_.size()));
    if (is_new) ends_.push_back(-1);
    node = found->second;
  }
  if (ends_[node] >= 0) return;
  ends_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  first_[static_cast<unsigned char>(text[0])] = true;
}

bool AddedTokenFinder::next(const AlignedView& view, size_t from, std::span<const TextRange> plain,
                            Found* found, size_t* steps) const {
  const std::string_view text = view.text;
  const size_t most_steps = kLongest * kLongest + kMostSteps * text.size();
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!first_[static_cast<unsigned char>(text[begin])]) continue;
    const AddedToken* longest = nullptr;
    size_t end = 0;
    uint32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      check(++*steps <= most_steps, "the added tokens of the tokenizer cannot be searched for at byte ",
            view.origin(begin), ": too many bytes of the text are like the begin of one");
      const auto next = edges_.find(edge(node, text[at]));
      if (next == edges_.end()) break;
      node = next->second;
      if (ends_[node] < 0) continue;
      const AddedToken& token = tokens_[static_cast<size_t>(ends_[node])];
      if (token.special && !plain.empty() && is_plain(view, {begin, at + 1}, plain)) continue;
      longest = &token;
      end = at + 1;
    }
    if (longest == nullptr) continue;
    *found = {longest, {begin, end}, end};
    if (longest->single_word && ((begin > 0 && has(text, last_character(text.substr(0, begin)), kWord)) ||
                                 (end < text.size() && has(text, end, kWord))))
      found->token = nullptr;
    if (longest->rstrip)
      while (found->range.end < text.size() && has(text, found->range.end, kSpace))
        next_code_point(text, found->range.end);
    return true;
  }
  return false;
}

size_t AddedTokenFinder::space_begin(std::string_view text, size_t end, size_t least) {
  while (end > least) {
    const size_t last = last_character(text.substr(0, end));
    if (last < least || !has(text, last, kSpace)) break;
    end = last;
  }
  return end;
}

}  // namespace flatshard
