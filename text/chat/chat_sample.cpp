#include "text/chat/chat_sample.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string_view>

#include "runtime/check.h"
#include "runtime/error_context.h"
#include "runtime/text.h"
#include "text/chat/image_text.h"
#include "text/chat/turn_finder.h"

namespace flatshard {
namespace {

constexpr char kAssistant[] = "assistant";

bool begins_with(const std::vector<int32_t>& whole, const std::vector<int32_t>& part) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

constexpr size_t kMostPrefixBytes = size_t{64} << 20;  // most rendered bytes for the mask of one conversation
constexpr std::string_view kPlaceholder = "\ue000";    // a private-use character

std::vector<size_t> turns_of_assistant(const Conversation& conversation) {
  std::vector<size_t> turns;
  for (size_t i = 0; i < conversation.messages.size(); ++i)
    if (conversation.role(i) == kAssistant) turns.push_back(i);
  return turns;
}

// Renders a conversation with images.
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

// Sorts the spans and joins overlapping ones.
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
  size_t end = text_bytes;  // end of the token; tokens that begin at the same byte share it
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

// Renders text that is formatted already. It shows as many images as it has <image> markers.
Rendering ChatEncoder::render_text(const std::string& text, const Conversation& conversation) const {
  const Rendering rendering{.text = text};
  if (conversation.images.empty()) return rendering;
  check(options_.images.has_value(), "has images, which the model of this tokenizer does not read");
  const size_t count = std::min(count_images(rendering, options_.images->rules), conversation.images.size());
  return with_image_text(rendering, std::span(conversation.images).first(count), options_.images->rules);
}

// The token ranges of the images' texts.
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

// Message text is plain: only the template writes special tokens. The exception is one BOS at the beginning
// of a text, if the tokenizer adds one.
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
  return with_place(where, [&] { return encoded(record); });
}

// A prompt and a completion given as texts are formatted already: special tokens in them are recognized.
ChatSample ChatEncoder::encoded(const ChatRecord& record) const {
  const Conversation& conversation = record.conversation;
  const bool is_text = conversation.messages.empty();
  check(!is_text || record.has_prompt, "the conversation is empty");
  const Rendering rendering =
      is_text ? render_text(record.prompt + record.completion, conversation) : render(conversation, false);
  const Tokens whole = tokens(rendering, conversation.images);
  ChatSample sample{
      .ids = whole.ids, .mask = {}, .images = whole.images, .double_bos = !is_text && whole.double_bos};
  if (is_text) {
    check(whole.images.size() == conversation.images.size(), "the record has ",
          counted(std::ssize(conversation.images), "image"), ", but prompt and completion show ",
          whole.images.size(), ": write <image> once for each");
    if (tokenizer_.eos() && (sample.ids.empty() || sample.ids.back() != *tokenizer_.eos()))
      sample.ids.push_back(*tokenizer_.eos());
  }
  const bool all = options_.train_on == TrainOn::all;
  sample.mask.assign(sample.ids.size(), all);
  if (!all && record.has_prompt)
    train_completion(record, sample);
  else if (!all)
    train_turns(conversation, rendering, whole, sample);
  untrain_images(sample);
  sample.untrained_end = !all && !is_text && has_untrained_end(sample);
  return sample;
}

void ChatEncoder::train_completion(const ChatRecord& record, ChatSample& sample) const {
  const Conversation& conversation = record.conversation;
  const std::vector<int32_t> asked =
      conversation.messages.empty()
          ? tokens(render_text(record.prompt, conversation), conversation.images).ids
          : prompt(conversation.first(record.prompt_messages));
  const auto begin = std::mismatch(asked.begin(), asked.end(), sample.ids.begin(), sample.ids.end());
  sample.split_prompt = begin.first != asked.end();
  std::fill(sample.mask.begin() + (begin.second - sample.ids.begin()), sample.mask.end(), 1);
}

void ChatEncoder::train_turns(const Conversation& conversation, const Rendering& rendering,
                              const Tokens& whole, ChatSample& sample) const {
  std::vector<size_t> turns = turns_of_assistant(conversation);
  const size_t first = whole.has_bos ? 1 : 0;
  const RenderedConversation shown{
      .conversation = conversation,
      .rendering = rendering,
      .ids = whole.ids,
      .begins = whole.begins,
      .first = first,
      .tokenizer = tokenizer_,
      .render = [&](const Conversation& other, bool asks) { return render(other, asks); }};
  sample.rewrites_history = rewrites_history(shown, turns);
  if (options_.train_on == TrainOn::last && !turns.empty()) turns.erase(turns.begin(), turns.end() - 1);
  std::vector<TextSpan> trained;
  if (rendering.generated.empty())
    trained = find_turns(shown, turns);
  else if (!turns.empty())
    trained = generated_text(rendering, turns);
  train_spans(sample, whole.begins, rendering.text.size(), first, std::move(trained));
  mask_by_prefixes(conversation, rendering, turns, sample);
}

// The text printed by {% generation %} blocks, of the last turn or of all. Removes the turns that it finds.
std::vector<TextSpan> ChatEncoder::generated_text(const Rendering& rendering,
                                                  std::vector<size_t>& turns) const {
  std::vector<TextSpan> spans = rendering.generated;
  if (options_.train_on == TrainOn::last) {
    size_t from = 0;  // end of the messages before the last turn
    for (const TextSpan& span : rendering.data)
      if (span.message >= 0 && span.message < static_cast<int32_t>(turns[0])) from = std::max(from, span.end);
    std::erase_if(spans, [&](const TextSpan& span) { return span.end <= from; });
    if (!spans.empty()) spans[0].begin = std::max(spans[0].begin, from);
  }
  if (!spans.empty()) turns.clear();
  return spans;
}

void ChatEncoder::mask_by_prefixes(const Conversation& conversation, const Rendering& rendering,
                                   const std::vector<size_t>& turns, ChatSample& sample) const {
  if (turns.empty()) return;
  const size_t text_bytes = rendering.text.size();
  const auto reason = [&](size_t turn) {
    return str("which tokens the assistant generates in message ", turn + 1,
               " cannot be told: the template has no {% generation %} blocks around them, ",
               why_hidden(rendering, turn));
  };
  constexpr const char* kRemedy =
      ": add such blocks to a copy of the template and name it as the chat template, write the message "
      "otherwise, or train all tokens (train_on = \"all\")";
  check(turns.size() <= std::max<size_t>(1, kMostPrefixBytes / std::max<size_t>(1, text_bytes)),
        reason(turns[0]), ", and so for ", turns.size(), " messages; to compare a conversation of ",
        text_bytes, " bytes with the beginning before each would take more than ", kMostPrefixBytes, " bytes",
        kRemedy);
  for (const size_t turn : turns) {
    const std::vector<int32_t> before = prompt(conversation.first(turn));
    const Conversation until = conversation.first(turn + 1);
    const std::vector<int32_t> after = tokens(render(until, false), until.images).ids;
    check(begins_with(sample.ids, before) && begins_with(sample.ids, after) && before.size() <= after.size(),
          reason(turn),
          ", and renders the conversation up to it differently on its own, as templates do that drop the "
          "thoughts of earlier turns",
          kRemedy);
    std::fill(sample.mask.begin() + static_cast<ptrdiff_t>(before.size()),
              sample.mask.begin() + static_cast<ptrdiff_t>(after.size()), 1);
  }
}

// True if a turn ends right before a special token and contains none itself.
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
