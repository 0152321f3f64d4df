#include "text/chat/turn_finder.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr size_t kMostComparisons = 8;  // most comparisons of a conversation with its beginnings
constexpr size_t kMostRenderedBytes = size_t{64} << 20;  // most bytes of rendered beginnings
constexpr std::string_view kPlaceholder = "\ue000";      // a private-use character

using Texts = std::vector<std::optional<TextSpan>>;  // the text of each message

// The first data that ends after this byte.
auto data_behind(const Rendering& rendering, size_t byte) {
  return std::partition_point(rendering.data.begin(), rendering.data.end(),
                              [byte](const TextSpan& span) { return span.end <= byte; });
}

// The text of each message in the rendering, from its first to its last byte. Templates repeat some text
// later, such as the name of a tool beside the tool's result; repetitions do not count. A message has no text
// if the rendering shows different parts of it in several places.
Texts texts_of_messages(const Rendering& rendering, size_t messages) {
  Texts texts(messages);
  std::vector<bool> is_scattered(messages);
  int32_t open = kOtherData;  // the message whose text continues
  for (const TextSpan& span : rendering.data) {
    if (span.message < 0 || static_cast<size_t>(span.message) >= messages) {
      open = kOtherData;
      continue;
    }
    const auto at = static_cast<size_t>(span.message);
    std::optional<TextSpan>& text = texts[at];
    if (!text) {
      text = span;
      open = span.message;
    } else if (open == span.message) {
      text->end = span.end;
    } else {
      const std::string_view all = rendering.text;
      const std::string_view shown = all.substr(text->begin, text->end - text->begin);
      is_scattered[at] =
          is_scattered[at] || shown.find(all.substr(span.begin, span.end - span.begin)) == shown.npos;
      open = kOtherData;
    }
  }
  for (size_t i = 0; i < messages; ++i)
    if (is_scattered[i]) texts[i].reset();
  return texts;
}

size_t bytes_of_texts(const JinjaValue& value) {
  size_t bytes = value.is(JinjaKind::text) ? value.text().size() : 0;
  if (value.is(JinjaKind::list))
    for (const JinjaValue& item : value.list().values) bytes += bytes_of_texts(item);
  if (value.is(JinjaKind::dict))
    for (const auto& [key, member] : value.dict().pairs)
      if (!key.is(JinjaKind::text) || key.bytes() != "role") bytes += bytes_of_texts(member);
  return bytes;
}

// Copies the conversation, with a placeholder as the content of some messages.
Conversation with_placeholders(Conversation conversation, const std::vector<size_t>& messages) {
  for (const size_t i : messages) {
    JinjaValue::Pairs pairs = conversation.messages[i].dict().pairs;
    pairs.emplace_back(SourcedText("content"), SourcedText(kPlaceholder, static_cast<int32_t>(i)));
    conversation.messages[i] = JinjaValue::dict(pairs);  // the last of two contents counts
  }
  return conversation;
}

size_t common_length(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// Returns an empty rendering if the template refuses the conversation.
Rendering try_render(const RenderedConversation& shown, const Conversation& conversation,
                     bool add_generation_prompt) {
  try {
    return shown.render(conversation, add_generation_prompt);
  } catch (const Error&) {
    return {};
  }
}

// Whether the rendering shows data of the message.
bool is_shown(const Rendering& rendering, size_t turn) {
  return std::any_of(rendering.data.begin(), rendering.data.end(),
                     [&](const TextSpan& span) { return span.message == static_cast<int32_t>(turn); });
}

class TurnFinder {
 public:
  explicit TurnFinder(const RenderedConversation& shown)
      : shown_(shown), conversation_(shown.conversation), rendering_(shown.rendering) {}

  std::vector<TextSpan> find(std::vector<size_t>& turns) {
    if (turns.empty()) return {};
    find_generation_prompt(turns.back());
    Texts texts = texts_of_messages(rendering_, conversation_.messages.size());
    place_empty_turns(turns, texts);
    std::vector<TextSpan> spans;
    std::erase_if(turns, [&](size_t turn) {
      const std::optional<TextSpan>& text = texts[turn];
      const bool is_after_others =
          !text || turn == 0 || !texts[turn - 1] || texts[turn - 1]->begin <= text->begin;
      const std::optional<TextSpan> span =
          text && is_after_others ? span_of(turn, *text) : hidden_turn(turn, texts);
      if (span) spans.push_back(*span);
      return span.has_value();
    });
    return spans;
  }

 private:
  struct Tail {
    size_t bytes = 0;
    bool is_whole = false;  // the turn ends after these bytes
  };

  // Renders a beginning of the conversation. Returns an empty rendering if too many bytes have been rendered.
  Rendering beginning(const Conversation& until) {
    rendered_ += rendering_.text.size();
    return rendered_ > kMostRenderedBytes ? Rendering{} : try_render(shown_, until, false);
  }

  // The text that the template appends to the conversation to ask for an answer.
  std::string prompt_after(const Conversation& conversation, const std::string& text) const {
    const std::string asking = try_render(shown_, conversation, true).text;
    return asking.starts_with(text) ? asking.substr(text.size()) : "";
  }

  // A template may end a conversation differently from how it continues one, or add no prompt after an
  // answer.
  void find_generation_prompt(size_t last_turn) {
    prompt_ = prompt_after(conversation_, rendering_.text);
    if (prompt_.empty() && last_turn > 0) {
      const Conversation before = conversation_.first(last_turn);
      prompt_ = prompt_after(before, try_render(shown_, before, false).text);
    }
    if (prompt_.empty()) return;
    const Encoding encoding = shown_.tokenizer.encode(prompt_, false, {});
    if (!encoding.ids.empty() && shown_.tokenizer.is_special(encoding.ids[0]))
      opening_ = encoding.ids.size() > 1 ? encoding.begins[1] : prompt_.size();
  }

  // The number of bytes of the generation prompt that the rendering has at `at`.
  size_t common_with_prompt(size_t at) const {
    return common_length(prompt_, std::string_view(rendering_.text).substr(at));
  }

  // Finds positions for turns that show no text, such as empty ones. A rendering with a placeholder in each
  // of them shows where their texts would be; it must not differ otherwise.
  void place_empty_turns(const std::vector<size_t>& turns, Texts& texts) const {
    std::vector<size_t> hidden;
    std::copy_if(turns.begin(), turns.end(), std::back_inserter(hidden),
                 [&](size_t turn) { return !texts[turn]; });
    if (hidden.empty()) return;
    const Rendering marked = try_render(shown_, with_placeholders(conversation_, hidden), false);
    std::string others;
    std::vector<TextSpan> found;
    size_t done = 0;
    for (const TextSpan& span : marked.data) {
      if (!std::binary_search(hidden.begin(), hidden.end(), static_cast<size_t>(span.message))) continue;
      if (span.end - span.begin != kPlaceholder.size()) return;
      others += marked.text.substr(done, span.begin - done);
      found.push_back({others.size(), others.size(), span.message});
      done = span.end;
    }
    others += marked.text.substr(done);
    if (others != rendering_.text) return;
    // Counts how often each message is shown. A position is known only if its message is shown once.
    std::vector<int> times(texts.size());
    for (const TextSpan& span : found)
      texts[static_cast<size_t>(span.message)] =
          ++times[static_cast<size_t>(span.message)] == 1 ? std::optional(span) : std::nullopt;
  }

  size_t token_at(size_t byte) const {
    return static_cast<size_t>(std::lower_bound(shown_.begins.begin() + static_cast<ptrdiff_t>(shown_.first),
                                                shown_.begins.end(), byte) -
                               shown_.begins.begin());
  }

  size_t token_end(size_t token) const {
    return token + 1 < shown_.begins.size() ? shown_.begins[token + 1] : rendering_.text.size();
  }

  // The span of a turn, with the special tokens that end it or, if there are none, the text that ends it.
  // Nothing if the end is unknown.
  std::optional<TextSpan> span_of(size_t turn, TextSpan text) {
    std::optional<Tail> tail;
    if (may_run_on(text)) tail = tail_of(turn, text);
    const auto behind = data_behind(rendering_, text.end);
    const size_t next =
        behind == rendering_.data.end() ? rendering_.text.size() : std::max(behind->begin, text.end);
    if (!tail) tail = tail_before(next, turn, text);
    std::optional<size_t> end;
    for (size_t t = token_at(text.end); t < shown_.ids.size() && shown_.begins[t] < next; ++t) {
      if (!shown_.tokenizer.is_special(shown_.ids[t])) continue;
      if (end && token_end(t) > text.end + tail->bytes) break;
      end = token_end(t);
    }
    if (!end && tail->is_whole) end = text.end + tail->bytes;
    return end ? std::optional(TextSpan{begin_of(text), *end, text.message}) : std::nullopt;
  }

  // Whether the last of the message's data may be a repetition that belongs to the next message: a special
  // token precedes it, and the message's earlier text contains it.
  bool may_run_on(const TextSpan& text) const {
    const auto last =
        std::prev(std::partition_point(rendering_.data.begin(), rendering_.data.end(),
                                       [&](const TextSpan& span) { return span.begin < text.end; }));
    if (text.end == text.begin || last->begin <= text.begin) return false;
    const size_t before = std::prev(last)->end;
    const std::string_view all = rendering_.text;
    if (all.substr(text.begin, before - text.begin).find(all.substr(last->begin, last->end - last->begin)) ==
        all.npos)
      return false;
    for (size_t t = token_at(before); t < shown_.ids.size() && shown_.begins[t] < last->begin; ++t)
      if (shown_.tokenizer.is_special(shown_.ids[t])) return true;
    return false;
  }

  // The end of the generation prompt before the text, or of the part of it that the turn has. A template may
  // add text to the prompt, such as the beginning of thoughts, that a turn without thoughts lacks.
  size_t begin_of(const TextSpan& text) const {
    const auto own = data_behind(rendering_, text.begin);
    const size_t before = own == rendering_.data.begin() ? 0 : std::prev(own)->end;
    const std::string_view header = std::string_view(rendering_.text).substr(before, text.begin - before);
    const std::string_view begins =
        std::string_view(prompt_).substr(0, opening_ > 0 ? opening_ : prompt_.size());
    const size_t at = begins.empty() ? header.npos : header.rfind(begins);
    return at == header.npos ? text.begin
                             : std::min(text.begin, before + at + common_with_prompt(before + at));
  }

  // Compares the bytes after the message's text with those in a conversation that ends with this turn: equal
  // bytes end the turn. That conversation also shows the message's whole text, so it may shorten `text`.
  Tail tail_of(size_t turn, TextSpan& text) {
    Conversation until = conversation_.first(turn + 1);
    if (text.begin == text.end) until = with_placeholders(std::move(until), {turn});
    const Rendering ends = beginning(until);
    const auto own = texts_of_messages(ends, turn + 1)[turn];
    if (!own) return {};
    const std::string_view all = rendering_.text, of_end = ends.text;
    if (text.begin < text.end) {
      const size_t length = own->end - own->begin;
      if (length > text.end - text.begin ||
          all.substr(text.begin, length) != of_end.substr(own->begin, length))
        return {};
      text.end = text.begin + length;
    }
    const std::string_view ending = of_end.substr(own->end);
    const size_t common = common_length(all.substr(text.end), ending);
    return {common, common == ending.size()};
  }

  // Finds the tail of a turn if other data follow at `next`. Equal template text between messages ends a turn
  // alike.
  Tail tail_before(size_t next, size_t turn, TextSpan text) {
    const std::string between = rendering_.text.substr(text.end, next - text.end);
    if (turn + 1 == conversation_.messages.size()) return {between.size(), true};
    const auto known = tails_.find(between);
    if (known != tails_.end()) return known->second;
    if (tails_.size() == kMostComparisons) return {};
    const size_t end = text.end;
    Tail tail = tail_of(turn, text);
    if (text.end != end) tail = {};
    return tails_[between] = tail;
  }

  // Finds a turn that shows no text, between messages that do. It goes from the only generation prompt
  // between them to the special token with which the conversation would end.
  std::optional<TextSpan> hidden_turn(size_t turn, const Texts& texts) {
    const bool is_last = turn + 1 == texts.size();
    if (opening_ == 0 || turn == 0 || is_shown(rendering_, turn) || !texts[turn - 1] ||
        (!is_last && !texts[turn + 1]))
      return {};
    const size_t from = texts[turn - 1]->end, to = is_last ? rendering_.text.size() : texts[turn + 1]->begin;
    size_t begin = 0, longest = 0, count = 0;
    for (size_t at = from; (at = rendering_.text.find(prompt_.substr(0, opening_), at)) < to; ++at) {
      const size_t common = std::min(common_with_prompt(at), to - at);
      count = common > longest ? 1 : count + (common == longest);
      if (common > longest) begin = at + common;
      longest = std::max(longest, common);
    }
    if (count != 1) return {};
    const Rendering until = beginning(conversation_.first(turn + 1));
    const size_t last_data = until.data.empty() ? 0 : until.data.back().end;
    const Encoding ending = shown_.tokenizer.encode(until.text.substr(last_data), false, {});
    const auto is_special = [&](int32_t token) { return shown_.tokenizer.is_special(token); };
    const auto last_special = std::find_if(ending.ids.rbegin(), ending.ids.rend(), is_special);
    const bool has_end = last_special != ending.ids.rend();
    for (size_t t = token_at(begin); t < shown_.ids.size() && shown_.begins[t] < to; ++t)
      if (has_end ? shown_.ids[t] == *last_special : is_special(shown_.ids[t]))
        return TextSpan{begin, token_end(t), static_cast<int32_t>(turn)};
    return {};
  }

  const RenderedConversation& shown_;
  const Conversation& conversation_;
  const Rendering& rendering_;
  std::string prompt_;                 // text that asks for an answer
  size_t rendered_ = 0;                // bytes of rendered beginnings
  size_t opening_ = 0;                 // bytes of the special token that begins the prompt
  std::map<std::string, Tail> tails_;  // keyed by the template text between messages
};

}  // namespace

std::vector<TextSpan> find_turns(const RenderedConversation& shown, std::vector<size_t>& turns) {
  return TurnFinder(shown).find(turns);
}

// Compares up to the end of a turn's text: the text printed at the end of a conversation is not history. If
// there are many turns, it tries only the partly shown ones, if any, because templates drop text of earlier
// turns.
bool rewrites_history(const RenderedConversation& shown, std::vector<size_t> turns) {
  if (turns.size() < 2) return false;
  turns.pop_back();
  const Conversation& conversation = shown.conversation;
  const Rendering& rendering = shown.rendering;
  const Texts texts = texts_of_messages(rendering, conversation.messages.size());
  if (turns.size() > kMostComparisons) {
    std::vector<size_t> bytes(conversation.messages.size());
    for (const TextSpan& span : rendering.data)
      if (span.message >= 0) bytes[static_cast<size_t>(span.message)] += span.end - span.begin;
    std::vector<size_t> partly;
    std::copy_if(turns.begin(), turns.end(), std::back_inserter(partly),
                 [&](size_t turn) { return bytes[turn] < bytes_of_texts(conversation.messages[turn]); });
    if (!partly.empty()) turns = std::move(partly);
  }
  const size_t tries = std::min(turns.size(), kMostComparisons);
  for (size_t i = 0; i < tries; ++i) {
    const size_t turn = turns[tries == 1 ? 0 : i * (turns.size() - 1) / (tries - 1)];
    const Rendering part = try_render(shown, conversation.first(turn + 1), false);
    if (part.text.empty()) continue;
    const auto text = texts_of_messages(part, turn + 1)[turn];
    const size_t end = text ? text->end : 0;
    if (end != (texts[turn] ? texts[turn]->end : 0)) return true;
    if (rendering.text.compare(0, end, part.text, 0, end) != 0) return true;
  }
  return false;
}

std::string why_hidden(const Rendering& rendering, size_t turn) {
  return is_shown(rendering, turn) ? "it shows the text of the message in several places, or without an end"
                                   : "it shows no text of the message";
}

}  // namespace flatshard
