#include "text/chat/chat_sample.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string_view>

#include "runtime/check.h"
#include "runtime/text.h"
#include "text/chat/image_text.h"

namespace flatshard {
namespace {

constexpr char kAssistant[] = "assistant";

bool begins_with(const std::vector<int32_t>& whole, const std::vector<int32_t>& part) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

constexpr size_t kMostComparisons = 8;                 // of a conversation with its beginnings
constexpr size_t kMostPrefixBytes = size_t{64} << 20;  // that are rendered for the mask of one conversation
constexpr std::string_view kPlaceholder = "\ue000";    // for private use

// Where the rendering shows the text of each message, from its first to its last byte.
std::vector<std::optional<TextSpan>> texts_of_messages(const Rendering& rendering, size_t messages) {
  std::vector<std::optional<TextSpan>> texts(messages);
  for (const TextSpan& span : rendering.data) {
    if (span.message < 0 || static_cast<size_t>(span.message) >= messages) continue;
    std::optional<TextSpan>& text = texts[static_cast<size_t>(span.message)];
    if (!text) text = span;
    text->end = span.end;
  }
  return texts;
}

// The first data that ends behind this byte.
auto data_behind(const Rendering& rendering, size_t byte) {
  return std::partition_point(rendering.data.begin(), rendering.data.end(),
                              [byte](const TextSpan& span) { return span.end <= byte; });
}

// Whether the text of another message is inside the span.
bool is_interrupted(const Rendering& rendering, const TextSpan& text) {
  for (auto span = data_behind(rendering, text.begin); span != rendering.data.end() && span->begin < text.end;
       ++span)
    if (span->message != text.message) return true;
  return false;
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

// The conversation with another content in some messages.
Conversation with_placeholders(Conversation conversation, const std::vector<size_t>& messages) {
  for (const size_t i : messages) {
    JinjaValue::Pairs pairs = conversation.messages[i].dict().pairs;
    pairs.emplace_back(SourcedText("content"), SourcedText(kPlaceholder, static_cast<int32_t>(i)));
    conversation.messages[i] = JinjaValue::dict(pairs);  // in which the last of two contents counts
  }
  return conversation;
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

// A conversation with images.
Rendering render_parts(const ChatTemplate& chat_template, const Conversation& conversation,
                       const ChatTemplate::Options& options) {
  try {
    return chat_template.render(conversation, options);
  } catch (const Error& error) {
    throw Error(str(error.what(),
                    "; a message that shows images is a list of parts, which the chat template "
                    "of a model that reads images can print"),
                error.where);
  }
}

void untrain_images(ChatSample& sample) {
  for (const ImageExtent& image : sample.images)
    std::fill(sample.mask.begin() + image.begin, sample.mask.begin() + image.end, uint8_t{0});
}

// Sorts the spans and joins those that overlap.
void join_spans(std::vector<TextSpan>& spans) {
  std::sort(spans.begin(), spans.end(),
            [](const TextSpan& a, const TextSpan& b) { return a.begin < b.begin; });
  size_t count = 0;
  for (const TextSpan& span : spans) {
    if (count > 0 && span.begin <= spans[count - 1].end)
      spans[count - 1].end = std::max(spans[count - 1].end, span.end);
    else
      spans[count++] = span;
  }
  spans.resize(count);
}

// Marks the tokens that have a byte in one of the spans.
void train_spans(ChatSample& sample, const std::vector<uint32_t>& begins, size_t text_bytes,
                 size_t first_token, std::vector<TextSpan> spans) {
  join_spans(spans);
  size_t end = text_bytes;  // of the token; tokens that begin at the same byte share it
  for (size_t t = sample.ids.size(); t-- > first_token;) {
    if (t + 1 < sample.ids.size() && begins[t + 1] > begins[t]) end = begins[t + 1];
    while (!spans.empty() && spans.back().begin >= end) spans.pop_back();
    sample.mask[t] = !spans.empty() && begins[t] < spans.back().end;
  }
}

}  // namespace

int64_t ChatSample::trained() const { return std::accumulate(mask.begin(), mask.end(), int64_t{0}); }

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat_template, Options options)
    : tokenizer_(tokenizer), template_(chat_template), options_(std::move(options)) {
  const std::vector<int32_t> added = tokenizer.encode("", true).ids;
  adds_bos_ = tokenizer.bos() && !added.empty() && added.front() == *tokenizer.bos();
  if (!options_.images) return;
  Conversation text;
  text.add("user", kPlaceholder);
  try {
    needs_parts_ = render(text, false).data.empty();
  } catch (const Error&) {
    needs_parts_ = true;
  }
}

Rendering ChatEncoder::render(const Conversation& conversation, bool add_generation_prompt) const {
  const ChatTemplate::Options options{.add_generation_prompt = add_generation_prompt,
                                      .settings = options_.settings};
  std::optional<Conversation> parts;
  if (needs_parts_) parts = with_parts(conversation);
  const Conversation& shown = parts ? *parts : conversation;
  if (conversation.images.empty()) return template_.render(shown, options);
  check(options_.images.has_value(), "has images, which the model of this tokenizer does not read");
  return with_image_text(render_parts(template_, shown, options), conversation.images,
                         options_.images->rules);
}

// Text that is formatted already, and shows as many of the images as it has <image>.
Rendering ChatEncoder::render_text(const std::string& text, const Conversation& conversation) const {
  const Rendering rendering{.text = text};
  if (conversation.images.empty()) return rendering;
  check(options_.images.has_value(), "has images, which the model of this tokenizer does not read");
  const size_t count = std::min(count_images(rendering, options_.images->rules), conversation.images.size());
  return with_image_text(rendering, std::span(conversation.images).first(count), options_.images->rules);
}

// Where the texts of images are among the tokens.
std::vector<ImageExtent> ChatEncoder::extents(const Rendering& rendering, const Tokens& tokens,
                                              const std::vector<ShownImage>& images) const {
  std::vector<ImageExtent> found;
  const auto token_at = [&](size_t byte) {
    return std::lower_bound(tokens.begins.begin() + (tokens.has_bos ? 1 : 0), tokens.begins.end(), byte) -
           tokens.begins.begin();
  };
  for (size_t i = 0; i < rendering.images.size(); ++i) {
    const ImageLayout layout = layout_of(options_.images->rules, images[i].size);
    const ImageExtent extent{.begin = token_at(rendering.images[i].begin),
                             .end = token_at(rendering.images[i].end),
                             .tokens = layout.tokens,
                             .frames = std::ssize(layout.frames),
                             .patches = layout.patches};
    const auto count = std::count(tokens.ids.begin() + extent.begin, tokens.ids.begin() + extent.end,
                                  options_.images->token);
    check(count == layout.tokens, "an image has ", layout.tokens,
          " image tokens, of which the tokenizer makes ", count, " of the model's image_token_id, ",
          options_.images->token, ": use the tokenizer of the model");
    found.push_back(extent);
  }
  return found;
}

// Message text is plain, and the template decides on special tokens, except that a text begins with one BOS
// if the tokenizer adds one.
ChatEncoder::Tokens ChatEncoder::tokens(const Rendering& rendering,
                                        const std::vector<ShownImage>& images) const {
  std::vector<TextRange> plain;
  for (const TextSpan& span : rendering.data) plain.push_back({span.begin, span.end});
  Encoding encoding = tokenizer_.encode(rendering.text, false, plain);
  Tokens made{.ids = std::move(encoding.ids), .begins = std::move(encoding.begins), .images = {}};
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
  made.images = extents(rendering, made, images);
  return made;
}

std::vector<int32_t> ChatEncoder::prompt(const Conversation& conversation) const {
  return tokens(render(conversation, true), conversation.images).ids;
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
    return tokens(render_text(text, record.conversation), record.conversation.images);
  };
  const std::vector<int32_t> prompt = encoded(record.prompt).ids;
  const Tokens whole = encoded(record.prompt + record.completion);
  check(whole.images.size() == record.conversation.images.size(), "the record has ",
        counted(std::ssize(record.conversation.images), "image"), ", but prompt and completion show ",
        whole.images.size(), ": write <image> once for each");
  ChatSample sample;
  append_untrained(sample, whole.ids);
  sample.images = whole.images;
  if (tokenizer_.eos() && (sample.ids.empty() || sample.ids.back() != *tokenizer_.eos())) {
    sample.ids.push_back(*tokenizer_.eos());
    sample.mask.push_back(0);
  }
  sample.split_prompt = !begins_with(sample.ids, prompt);
  std::fill(sample.mask.begin() + static_cast<ptrdiff_t>(std::min(prompt.size(), sample.ids.size())),
            sample.mask.end(), 1);
  untrain_images(sample);
  return sample;
}

ChatSample ChatEncoder::prompt_and_completion(const ChatRecord& record) const {
  const std::vector<int32_t> asked = prompt(record.conversation.first(record.prompt_messages));
  const Tokens whole = tokens(render(record.conversation, false), record.conversation.images);
  ChatSample sample;
  append_untrained(sample, whole.ids);
  sample.images = whole.images;
  sample.double_bos = whole.double_bos;
  sample.split_prompt = !begins_with(sample.ids, asked);
  std::fill(sample.mask.begin() + static_cast<ptrdiff_t>(std::min(asked.size(), sample.ids.size())),
            sample.mask.end(), 1);
  untrain_images(sample);
  sample.untrained_end = has_untrained_end(sample);
  return sample;
}

ChatSample ChatEncoder::conversation_sample(const Conversation& conversation) const {
  const Rendering rendering = render(conversation, false);
  const Tokens whole = tokens(rendering, conversation.images);
  ChatSample sample;
  append_untrained(sample, whole.ids);
  sample.images = whole.images;
  sample.double_bos = whole.double_bos;
  std::vector<size_t> turns = turns_of_assistant(conversation);
  sample.rewrites_history = rewrites_history(conversation, rendering, turns);
  if (options_.last_turn_only && !turns.empty()) turns.erase(turns.begin(), turns.end() - 1);
  std::vector<TextSpan> trained;
  if (rendering.generated.empty())
    trained = text_of_turns(conversation, rendering, whole, turns);
  else if (!turns.empty())
    trained = generated_text(rendering, turns);
  train_spans(sample, whole.begins, rendering.text.size(), whole.has_bos ? 1 : 0, std::move(trained));
  mask_by_prefixes(conversation, rendering.text.size(), turns, sample);
  untrain_images(sample);
  sample.untrained_end = has_untrained_end(sample);
  return sample;
}

// What {% generation %} blocks print, of the last turn or of all. Removes the turns that it finds.
std::vector<TextSpan> ChatEncoder::generated_text(const Rendering& rendering,
                                                  std::vector<size_t>& turns) const {
  std::vector<TextSpan> spans = rendering.generated;
  if (options_.last_turn_only) {
    size_t from = 0;  // where the messages before the last turn end
    for (const TextSpan& span : rendering.data)
      if (span.message >= 0 && span.message < static_cast<int32_t>(turns[0])) from = std::max(from, span.end);
    std::erase_if(spans, [&](const TextSpan& span) { return span.end <= from; });
    if (!spans.empty()) spans[0].begin = std::max(spans[0].begin, from);
  }
  if (!spans.empty()) turns.clear();
  return spans;
}

// The text of the turns with the special tokens that end them. Removes the turns that it finds: no turn
// changes what is trained of the others.
std::vector<TextSpan> ChatEncoder::text_of_turns(const Conversation& conversation, const Rendering& rendering,
                                                 const Tokens& tokens, std::vector<size_t>& turns) const {
  if (turns.empty()) return {};
  const std::string asking = render(conversation, true).text;
  const std::string generation_prompt =
      asking.starts_with(rendering.text) ? asking.substr(rendering.text.size()) : "";
  auto texts = texts_of_messages(rendering, conversation.messages.size());
  place_empty_turns(conversation, rendering, turns, texts);
  std::vector<TextSpan> spans;
  std::erase_if(turns, [&](size_t turn) {
    if (!texts[turn] || is_interrupted(rendering, *texts[turn])) return false;
    TextSpan span = *texts[turn];
    const auto behind = data_behind(rendering, span.end);
    const size_t next_text = behind == rendering.data.end() ? rendering.text.size() + 1 : behind->end;
    const auto own = data_behind(rendering, span.begin);
    const size_t before = own == rendering.data.begin() ? 0 : std::prev(own)->end;
    const std::string header = rendering.text.substr(before, span.begin - before);
    if (const size_t at = header.rfind(generation_prompt); !generation_prompt.empty() && at != header.npos)
      span.begin = before + at + generation_prompt.size();

    auto t = static_cast<size_t>(
        std::lower_bound(tokens.begins.begin() + (tokens.has_bos ? 1 : 0), tokens.begins.end(), span.end) -
        tokens.begins.begin());
    while (t < tokens.ids.size() && tokens.begins[t] < next_text && !tokenizer_.is_special(tokens.ids[t]))
      ++t;
    if (t == tokens.ids.size() || tokens.begins[t] >= next_text) return false;
    span.end = tokens.begins[t] + 1;  // with the special token that ends the turn
    spans.push_back(span);
    return true;
  });
  return spans;
}

// Finds where the text of turns would be that show none, such as empty ones: where a rendering with a
// placeholder in each shows that. It must differ by nothing else.
void ChatEncoder::place_empty_turns(const Conversation& conversation, const Rendering& rendering,
                                    const std::vector<size_t>& turns,
                                    std::vector<std::optional<TextSpan>>& texts) const {
  std::vector<size_t> hidden;
  std::copy_if(turns.begin(), turns.end(), std::back_inserter(hidden),
               [&](size_t turn) { return !texts[turn]; });
  if (hidden.empty()) return;
  Rendering marked;
  try {
    marked = render(with_placeholders(conversation, hidden), false);
  } catch (const Error&) {
    return;  // the template refuses the placeholder
  }
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
  if (others != rendering.text) return;
  std::vector<int> times(texts.size());  // that a message is shown: its place is known only if it is one
  for (const TextSpan& span : found)
    texts[static_cast<size_t>(span.message)] =
        ++times[static_cast<size_t>(span.message)] == 1 ? std::optional(span) : std::nullopt;
}

void ChatEncoder::mask_by_prefixes(const Conversation& conversation, size_t text_bytes,
                                   const std::vector<size_t>& turns, ChatSample& sample) const {
  if (turns.empty()) return;
  const auto reason = [](size_t turn) {
    return str("which tokens the assistant generates in message ", turn + 1,
               " cannot be told: the template has no {% generation %} blocks, and ");
  };
  check(turns.size() <= std::max<size_t>(1, kMostPrefixBytes / std::max<size_t>(1, text_bytes)),
        reason(turns[0]), "it does not show where the text of ", turns.size(),
        " messages ends. To compare a conversation of ", text_bytes,
        " bytes with the beginning before each would take more than ", kMostPrefixBytes,
        " bytes; use a template with such blocks, or split the conversation");
  for (const size_t turn : turns) {
    const std::vector<int32_t> before = prompt(conversation.first(turn));
    const Conversation until = conversation.first(turn + 1);
    const std::vector<int32_t> after = tokens(render(until, false), until.images).ids;
    check(begins_with(sample.ids, before) && begins_with(sample.ids, after) && before.size() <= after.size(),
          reason(turn),
          "it hides the text of the message and renders the beginning of the conversation differently on its "
          "own");
    std::fill(sample.mask.begin() + static_cast<ptrdiff_t>(before.size()),
              sample.mask.begin() + static_cast<ptrdiff_t>(after.size()), 1);
  }
}

// Compares up to the end of a turn's text: what a template prints at the end of a conversation is no history.
// A rendering takes as long as the conversation, so of many turns it tries only a few: those that are shown
// in part, if there are any, because templates drop text of earlier turns.
bool ChatEncoder::rewrites_history(const Conversation& conversation, const Rendering& rendering,
                                   std::vector<size_t> turns) const {
  if (turns.size() < 2) return false;
  turns.pop_back();
  const auto texts = texts_of_messages(rendering, conversation.messages.size());
  if (turns.size() > kMostComparisons) {
    std::vector<size_t> shown(conversation.messages.size());
    for (const TextSpan& span : rendering.data)
      if (span.message >= 0) shown[static_cast<size_t>(span.message)] += span.end - span.begin;
    std::vector<size_t> partly;
    std::copy_if(turns.begin(), turns.end(), std::back_inserter(partly),
                 [&](size_t turn) { return shown[turn] < bytes_of_texts(conversation.messages[turn]); });
    if (!partly.empty()) turns = std::move(partly);
  }
  const size_t tries = std::min(turns.size(), kMostComparisons);
  for (size_t i = 0; i < tries; ++i) {
    const size_t turn = turns[tries == 1 ? 0 : i * (turns.size() - 1) / (tries - 1)];
    const Rendering part = render(conversation.first(turn + 1), false);
    const auto text = texts_of_messages(part, turn + 1)[turn];
    const size_t end = text ? text->end : 0;
    if (end != (texts[turn] ? texts[turn]->end : 0)) return true;
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
