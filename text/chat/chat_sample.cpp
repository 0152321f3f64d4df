#include "text/chat/chat_sample.h"

#include <algorithm>
#include <numeric>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr char kAssistant[] = "assistant";

bool begins_with(const std::vector<int32_t>& whole, const std::vector<int32_t>& part) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

// From the first to the last byte of a message's text; empty if the rendering shows none of it.
TextSpan text_of_message(const Rendering& rendering, size_t message) {
  TextSpan found{0, 0, static_cast<int32_t>(message)};
  for (const TextSpan& span : rendering.data) {
    if (span.message != found.message) continue;
    if (found.end == 0) found.begin = span.begin;
    found.end = span.end;
  }
  return found;
}

// Whether the text of another message is inside the span.
bool is_interrupted(const Rendering& rendering, const TextSpan& text) {
  return std::any_of(rendering.data.begin(), rendering.data.end(), [&](const TextSpan& span) {
    return span.message != text.message && span.begin < text.end && span.end > text.begin;
  });
}

std::vector<size_t> turns_of_assistant(const Conversation& conversation) {
  std::vector<size_t> turns;
  for (size_t i = 0; i < conversation.messages.size(); ++i)
    if (conversation.role(i) == kAssistant) turns.push_back(i);
  return turns;
}

void append_untrained(ChatSample& sample, const std::vector<int32_t>& ids) {
  sample.ids = ids;
  sample.mask.assign(ids.size(), 0);
}

// Marks the tokens that have a byte in one of the spans, which are in ascending order.
void train_spans(ChatSample& sample, const std::vector<uint32_t>& begins, size_t text_bytes,
                 size_t first_token, const std::vector<TextSpan>& spans) {
  size_t end = text_bytes;  // of the token; tokens that begin at the same byte share it
  for (size_t t = sample.ids.size(); t-- > first_token;) {
    if (t + 1 < sample.ids.size() && begins[t + 1] > begins[t]) end = begins[t + 1];
    sample.mask[t] = std::any_of(spans.begin(), spans.end(), [&](const TextSpan& span) {
      return begins[t] < span.end && end > span.begin;
    });
  }
}

}  // namespace

int64_t ChatSample::trained() const { return std::accumulate(mask.begin(), mask.end(), int64_t{0}); }

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat_template, Options options)
    : tokenizer_(tokenizer), template_(chat_template), options_(std::move(options)) {
  const std::vector<int32_t> added = tokenizer.encode("", true).ids;
  adds_bos_ = tokenizer.bos() && !added.empty() && added.front() == *tokenizer.bos();
}

Rendering ChatEncoder::render(const Conversation& conversation, bool add_generation_prompt) const {
  return template_.render(conversation,
                          {.add_generation_prompt = add_generation_prompt, .settings = options_.settings});
}

// Message text is plain, and the template decides on special tokens, except that a text begins with one BOS
// if the tokenizer adds one.
ChatEncoder::Tokens ChatEncoder::tokens(const Rendering& rendering) const {
  std::vector<TextRange> plain;
  for (const TextSpan& span : rendering.data) plain.push_back({span.begin, span.end});
  Encoding encoding = tokenizer_.encode(rendering.text, false, plain);
  Tokens made{.ids = std::move(encoding.ids), .begins = std::move(encoding.begins), .double_bos = false};
  const auto bos_at = [&](size_t i) {
    return tokenizer_.bos() && i < made.ids.size() && made.ids[i] == *tokenizer_.bos();
  };
  if (adds_bos_ && !bos_at(0)) {
    made.ids.insert(made.ids.begin(), *tokenizer_.bos());
    made.begins.insert(made.begins.begin(), 0);
    made.has_bos = true;
  }
  made.double_bos = bos_at(0) && ((adds_bos_ && !made.has_bos) || bos_at(1));
  if (bos_at(0) && bos_at(1)) {
    made.ids.erase(made.ids.begin());
    made.begins.erase(made.begins.begin());
  }
  return made;
}

std::vector<int32_t> ChatEncoder::prompt(const Conversation& conversation) const {
  return tokens(render(conversation, true)).ids;
}

ChatSample ChatEncoder::sample(const ChatRecord& record, const std::string& where) const {
  try {
    if (record.conversation.messages.empty()) {
      check(record.has_prompt, "the conversation is empty");
      return text_pair(record);
    }
    return record.has_prompt ? prompt_and_completion(record) : conversation_sample(record.conversation);
  } catch (const Error& error) {
    throw Error(where + ": " + error.what(), error.where);
  }
}

// Two strings, which are formatted already: special tokens in them are recognized.
ChatSample ChatEncoder::text_pair(const ChatRecord& record) const {
  const auto encoded = [&](const std::string& text) {
    return tokens({.text = text, .data = {}, .generated = {}}).ids;
  };
  const std::vector<int32_t> prompt = encoded(record.prompt);
  ChatSample sample;
  append_untrained(sample, encoded(record.prompt + record.completion));
  if (tokenizer_.eos() && (sample.ids.empty() || sample.ids.back() != *tokenizer_.eos())) {
    sample.ids.push_back(*tokenizer_.eos());
    sample.mask.push_back(0);
  }
  sample.split_prompt = !begins_with(sample.ids, prompt);
  std::fill(sample.mask.begin() + static_cast<ptrdiff_t>(std::min(prompt.size(), sample.ids.size())),
            sample.mask.end(), 1);
  return sample;
}

ChatSample ChatEncoder::prompt_and_completion(const ChatRecord& record) const {
  const std::vector<int32_t> asked = prompt(record.conversation.first(record.prompt_messages));
  const Tokens whole = tokens(render(record.conversation, false));
  ChatSample sample;
  append_untrained(sample, whole.ids);
  sample.double_bos = whole.double_bos;
  sample.split_prompt = !begins_with(sample.ids, asked);
  std::fill(sample.mask.begin() + static_cast<ptrdiff_t>(std::min(asked.size(), sample.ids.size())),
            sample.mask.end(), 1);
  sample.untrained_end = has_untrained_end(sample);
  return sample;
}

ChatSample ChatEncoder::conversation_sample(const Conversation& conversation) const {
  const Rendering rendering = render(conversation, false);
  const Tokens whole = tokens(rendering);
  ChatSample sample;
  append_untrained(sample, whole.ids);
  sample.double_bos = whole.double_bos;
  sample.rewrites_history = rewrites_history(conversation, rendering);
  const std::vector<TextSpan> trained = trained_text(conversation, rendering, whole);
  if (!trained.empty())
    train_spans(sample, whole.begins, rendering.text.size(), whole.has_bos ? 1 : 0, trained);
  else if (!turns_of_assistant(conversation).empty())
    mask_by_prefixes(conversation, sample);
  sample.untrained_end = has_untrained_end(sample);
  return sample;
}

// The text that is trained, or nothing if the rendering does not show where it is.
std::vector<TextSpan> ChatEncoder::trained_text(const Conversation& conversation, const Rendering& rendering,
                                                const Tokens& tokens) const {
  std::vector<size_t> turns = turns_of_assistant(conversation);
  if (turns.empty()) return {};
  const auto end_of_text_before = [&](size_t byte) {
    size_t end = 0;
    for (const TextSpan& span : rendering.data)
      if (span.end <= byte) end = span.end;
    return end;
  };
  if (options_.last_turn_only) turns.erase(turns.begin(), turns.end() - 1);
  if (!rendering.generated.empty()) {
    std::vector<TextSpan> spans = rendering.generated;
    if (!options_.last_turn_only) return spans;
    size_t from = 0;  // where the messages before the last turn end
    for (const TextSpan& span : rendering.data)
      if (span.message >= 0 && span.message < static_cast<int32_t>(turns[0])) from = std::max(from, span.end);
    std::erase_if(spans, [&](const TextSpan& span) { return span.end <= from; });
    if (!spans.empty()) spans[0].begin = std::max(spans[0].begin, from);
    return spans;
  }

  const std::string asking = render(conversation, true).text;
  const std::string generation_prompt =
      asking.starts_with(rendering.text) ? asking.substr(rendering.text.size()) : "";
  std::vector<TextSpan> spans;
  for (const size_t turn : turns) {
    TextSpan span = text_of_message(rendering, turn);
    if (span.end == 0 || is_interrupted(rendering, span)) return {};
    const size_t before = end_of_text_before(span.begin);
    const std::string header = rendering.text.substr(before, span.begin - before);
    if (const size_t at = header.rfind(generation_prompt); !generation_prompt.empty() && at != header.npos)
      span.begin = before + at + generation_prompt.size();

    auto t = static_cast<size_t>(
        std::lower_bound(tokens.begins.begin() + (tokens.has_bos ? 1 : 0), tokens.begins.end(), span.end) -
        tokens.begins.begin());
    while (t < tokens.ids.size() && !tokenizer_.is_special(tokens.ids[t])) ++t;
    if (t == tokens.ids.size() || end_of_text_before(tokens.begins[t]) > span.end) return {};
    span.end = tokens.begins[t] + 1;  // with the special token that ends the turn
    spans.push_back(span);
  }
  return spans;
}

void ChatEncoder::mask_by_prefixes(const Conversation& conversation, ChatSample& sample) const {
  std::vector<size_t> turns = turns_of_assistant(conversation);
  if (options_.last_turn_only) turns.erase(turns.begin(), turns.end() - 1);
  for (const size_t turn : turns) {
    const std::vector<int32_t> before = prompt(conversation.first(turn));
    const std::vector<int32_t> after = tokens(render(conversation.first(turn + 1), false)).ids;
    check(begins_with(sample.ids, before) && begins_with(sample.ids, after) && before.size() <= after.size(),
          "which tokens the assistant generates in message ", turn + 1,
          " cannot be told: the template has no {% generation %} blocks, hides the text of the message, and "
          "renders "
          "the beginning of the conversation differently on its own");
    std::fill(sample.mask.begin() + static_cast<ptrdiff_t>(before.size()),
              sample.mask.begin() + static_cast<ptrdiff_t>(after.size()), 1);
  }
}

// Compares up to the end of each turn's text: what a template prints at the end of a conversation is no
// history.
bool ChatEncoder::rewrites_history(const Conversation& conversation, const Rendering& rendering) const {
  const std::vector<size_t> turns = turns_of_assistant(conversation);
  for (size_t i = 0; i + 1 < turns.size(); ++i) {
    const Rendering part = render(conversation.first(turns[i] + 1), false);
    const size_t end = text_of_message(part, turns[i]).end;
    if (end != text_of_message(rendering, turns[i]).end) return true;
    if (rendering.text.compare(0, end, part.text, 0, end) != 0) return true;
  }
  return false;
}

// A turn that ends right before a special token, and has none itself.
bool ChatEncoder::has_untrained_end(const ChatSample& sample) const {
  bool has_special = false;
  for (size_t t = 0; t < sample.ids.size(); ++t) {
    const bool is_special = tokenizer_.is_special(sample.ids[t]);
    if (sample.mask[t] == 0) {
      if (t > 0 && sample.mask[t - 1] != 0 && is_special && !has_special) return true;
      has_special = false;
    } else {
      has_special |= is_special;
    }
  }
  return false;
}

}  // namespace flatshard
