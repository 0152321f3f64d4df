#include "text/tokenizer/tokenizer_steps.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/json.h"
#include "text/words/unicode.h"

namespace flatshard {
namespace {

using nlohmann::json;

constexpr size_t kMostSteps = 64;
constexpr size_t kMostTemplate = 64;  // parts of a template
constexpr int64_t kMostStrips = 1000;
constexpr size_t kMostContent = 64;  // most bytes that replace a match

template <class Value>
Value one_of(const JsonReader& component, const char* member,
             std::initializer_list<std::pair<const char*, Value>> values) {
  const std::string name = text_of(component, member);
  for (const auto& [text, value] : values)
    if (name == text) return value;
  unsupported(component, str(member, " \"", name, '"'));
}

Pattern pattern_of(const JsonReader& component) {
  const JsonReader pattern = component.object("pattern");
  allow(pattern, {"Regex", "String"});
  if (pattern.has("String")) return Pattern::literal(text_of(pattern, "String"));
  const std::string expression = text_of(pattern, "Regex");
  try {
    return Pattern::expression(expression);
  } catch (const Error& error) {
    throw Error(component.where() + ": " + error.what(), error.where);
  }
}

// Limits the length, because long texts have no use and could make a text grow without bound.
std::string short_text(const JsonReader& component, const char* member) {
  const std::string text = text_of(component, member);
  check(text.size() <= kMostContent, component.where(), ": \"", member, "\" has ", text.size(),
        " bytes, must have at most ", kMostContent);
  return text;
}

// The replacement of a match, which may be empty.
std::string content_of(const JsonReader& component) {
  return component.value("content") == "" ? "" : short_text(component, "content");
}

void check_steps(const JsonReader& component, size_t steps) {
  check(steps <= kMostSteps, component.where(), ": there are more than ", kMostSteps, " steps");
}

SplitBehavior behavior_of(const JsonReader& component) {
  return one_of<SplitBehavior>(component, "behavior",
                               {{"Isolated", SplitBehavior::isolated},
                                {"Removed", SplitBehavior::removed},
                                {"MergedWithPrevious", SplitBehavior::merged_with_previous},
                                {"MergedWithNext", SplitBehavior::merged_with_next},
                                {"Contiguous", SplitBehavior::contiguous}});
}

// Reads prepend_scheme; older files write add_prefix_space: false for prepend_scheme: never.
PrependScheme scheme_of(const JsonReader& component) {
  const bool never = !component.flag("add_prefix_space", true);
  if (!component.has("prepend_scheme")) return never ? PrependScheme::never : PrependScheme::always;
  const auto scheme = one_of<PrependScheme>(
      component, "prepend_scheme",
      {{"always", PrependScheme::always}, {"first", PrependScheme::first}, {"never", PrependScheme::never}});
  check(!never || scheme == PrependScheme::never, component.where(),
        ": add_prefix_space is false, but prepend_scheme is not \"never\"");
  return scheme;
}

constexpr std::initializer_list<const char*> kMetaspaceMembers{"replacement", "prepend_scheme",
                                                               "add_prefix_space", "split", "str_rep"};

void read_template(const JsonReader& component, TokenizerParts* parts) {
  allow(component, {"single", "pair", "special_tokens"});
  const JsonReader specials = component.object("special_tokens");
  std::vector<int32_t> before, after;
  std::vector<int32_t>* side = &before;
  for (const JsonReader& part : component.objects("single", kMostTemplate)) {
    if (part.has("Sequence")) {
      check(part.object("Sequence").text("id") == "A" && side == &before, part.where(),
            ": the template for one text must have the sequence A once");
      side = &after;
      continue;
    }
    const std::string name = text_of(part.object("SpecialToken"), "id");
    const JsonReader token = specials.object(name);
    const json& ids = token.value("ids");
    check(ids.is_array() && ids.size() <= kMostTemplate, token.where(),
          ": \"ids\" must be an array of at most ", kMostTemplate, " ids");
    for (const json& id : ids) {
      check(id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(parts->vocab),
            token.where(), ": \"ids\" must be ids of the vocabulary of ", parts->vocab);
      side->push_back(id.get<int32_t>());
    }
  }
  check(side == &after, component.where(), ": \"single\" must contain the sequence A");
  parts->prefix.insert(parts->prefix.begin(), before.begin(), before.end());
  parts->suffix.insert(parts->suffix.end(), after.begin(), after.end());
}

// Reads a token of the post-processors of BERT and RoBERTa: "sep": ["</s>", 2]
int32_t token_of_pair(const JsonReader& component, const char* member, const TokenizerParts& parts) {
  const json& pair = component.value(member);
  check(pair.is_array() && pair.size() == 2 && pair[1].is_number_unsigned() &&
            pair[1].get<uint64_t>() < static_cast<uint64_t>(parts.vocab),
        component.where(), ": \"", member, "\" must be a token and its id in the vocabulary");
  return pair[1].get<int32_t>();
}

std::string with_replaced(const std::string& token, const Pattern& pattern, const std::string& content) {
  std::string out;
  pattern.cut(token, [&](size_t begin, size_t end, bool is_match) {
    out += is_match ? content : token.substr(begin, end - begin);
  });
  return out;
}

std::string stripped(std::string token, const std::string& content, int64_t start, int64_t stop) {
  for (; start > 0 && token.starts_with(content); --start) token.erase(0, content.size());
  for (; stop > 0 && token.ends_with(content); --stop) token.resize(token.size() - content.size());
  return token;
}

}  // namespace

std::string text_of(const JsonReader& in, const char* member) {
  const std::string text = in.text(member);
  check(!text.empty(), in.where(), ": \"", member, "\" is empty, must be text");
  return text;
}

std::string type_of(JsonReader& in) {
  const std::string type = text_of(in, "type");
  in.label(type);
  return type;
}

void allow(const JsonReader& in, std::initializer_list<const char*> members) {
  if (const auto unknown = in.unknown_member(members)) unsupported(in, str("the member \"", *unknown, '"'));
}

void unsupported(const JsonReader& in, const std::string& what) {
  fail(in.where() + ": " + what + " is not supported");
}

void read_normalizer(JsonReader c, Normalizer* normalizer) {
  const std::string type = type_of(c);
  if (type == "Sequence") {
    allow(c, {"normalizers"});
    for (const JsonReader& step : c.objects("normalizers", kMostSteps)) read_normalizer(step, normalizer);
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    allow(c, {});
    normalizer->add(normal_form_step(type == "NFC"    ? NormalForm::nfc
                                     : type == "NFD"  ? NormalForm::nfd
                                     : type == "NFKC" ? NormalForm::nfkc
                                                      : NormalForm::nfkd));
  } else if (type == "Prepend") {
    allow(c, {"prepend"});
    normalizer->add(prepend_step(short_text(c, "prepend")));
  } else if (type == "Replace") {
    allow(c, {"pattern", "content"});
    normalizer->add(replace_step(pattern_of(c), content_of(c)));
  } else if (type == "Lowercase") {
    allow(c, {});
    normalizer->add(lowercase_step());
  } else if (type == "Strip") {
    allow(c, {"strip_left", "strip_right"});
    normalizer->add(strip_step(c.flag("strip_left", true), c.flag("strip_right", true)));
  } else {
    unsupported(c, "this normalizer");
  }
  check_steps(c, normalizer->steps());
}

void read_pre_tokenizer(JsonReader c, PreTokenizer* pre_tokenizer, bool* byte_level) {
  const std::string type = type_of(c);
  check(!*byte_level, c.where(), ": follows a ByteLevel, which must be the last pre-tokenizer");
  if (type == "Sequence") {
    allow(c, {"pretokenizers"});
    for (const JsonReader& step : c.objects("pretokenizers", kMostSteps))
      read_pre_tokenizer(step, pre_tokenizer, byte_level);
  } else if (type == "ByteLevel") {
    allow(c, {"add_prefix_space", "trim_offsets", "use_regex"});
    if (c.flag("add_prefix_space", true)) pre_tokenizer->add(leading_space_step());
    if (c.flag("use_regex", true))
      pre_tokenizer->add(split_step(Pattern::expression(kGpt2Pattern), SplitBehavior::isolated, false));
    *byte_level = true;
  } else if (type == "Split") {
    allow(c, {"pattern", "behavior", "invert"});
    pre_tokenizer->add(split_step(pattern_of(c), behavior_of(c), c.flag("invert", false)));
  } else if (type == "Metaspace") {
    allow(c, kMetaspaceMembers);
    pre_tokenizer->add(metaspace_step(short_text(c, "replacement"), scheme_of(c), c.flag("split", true)));
  } else if (type == "Digits") {
    allow(c, {"individual_digits"});
    const bool individual = c.flag("individual_digits", false);
    pre_tokenizer->add(split_step(Pattern::one_of(kNumber),
                                  individual ? SplitBehavior::isolated : SplitBehavior::contiguous, false));
  } else if (type == "Punctuation") {
    allow(c, {"behavior"});
    pre_tokenizer->add(split_step(Pattern::one_of(kPunctuation),
                                  c.has("behavior") ? behavior_of(c) : SplitBehavior::isolated, false));
  } else if (type == "Whitespace") {
    allow(c, {});
    pre_tokenizer->add(whitespace_step());
  } else if (type == "WhitespaceSplit") {
    allow(c, {});
    pre_tokenizer->add(split_step(Pattern::one_of(kSpace), SplitBehavior::removed, false));
  } else {
    unsupported(c, "this pre-tokenizer");
  }
  check_steps(c, pre_tokenizer->steps());
}

void read_post_processor(JsonReader c, TokenizerParts* parts) {
  const std::string type = type_of(c);
  if (type == "Sequence") {
    allow(c, {"processors"});
    for (const JsonReader& step : c.objects("processors", kMostSteps)) read_post_processor(step, parts);
  } else if (type == "TemplateProcessing") {
    read_template(c, parts);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    allow(c, {"sep", "cls", "trim_offsets", "add_prefix_space"});
    parts->prefix.insert(parts->prefix.begin(), token_of_pair(c, "cls", *parts));
    parts->suffix.push_back(token_of_pair(c, "sep", *parts));
  } else if (type != "ByteLevel") {  // ByteLevel changes only offsets
    unsupported(c, "this post-processor");
  }
}

void read_decoder(JsonReader c, DecoderSteps* steps) {
  const std::string type = type_of(c);
  Decoder::Rules& rules = steps->rules;
  const bool joined = steps->fused || rules.kind != Decoder::Kind::text || !rules.replacement.empty();
  if (type == "Sequence") {
    allow(c, {"decoders"});
    for (const JsonReader& step : c.objects("decoders", kMostSteps)) read_decoder(step, steps);
  } else if (type == "Fuse") {
    allow(c, {});
    steps->fused = true;
  } else if (type == "Strip" && steps->fused) {
    allow(c, {"content", "start", "stop"});
    check(c.whole("stop", 0, kMostStrips) == 0 && rules.strip.empty(), c.where(),
          ": only one Strip at the start of the text is supported after Fuse");
    rules.strip = text_of(c, "content");
    rules.most_strips = c.whole("start", 0, kMostStrips);
  } else if (joined) {
    unsupported(c, "this order of decoders");
  } else if (type == "Strip") {
    allow(c, {"content", "start", "stop"});
    steps->edits.push_back([content = text_of(c, "content"), start = c.whole("start", 0, kMostStrips),
                            stop = c.whole("stop", 0, kMostStrips)](const std::string& token) {
      return stripped(token, content, start, stop);
    });
  } else if (type == "Replace") {
    allow(c, {"pattern", "content"});
    steps->edits.push_back([pattern = pattern_of(c), content = content_of(c)](const std::string& token) {
      return with_replaced(token, pattern, content);
    });
  } else if (type == "ByteLevel") {
    allow(c, {"add_prefix_space", "trim_offsets", "use_regex"});
    rules.kind = Decoder::Kind::bytes;
  } else if (type == "ByteFallback") {
    allow(c, {});
    rules.kind = Decoder::Kind::fallback;
  } else if (type == "Metaspace") {
    allow(c, kMetaspaceMembers);
    rules.replacement = text_of(c, "replacement");
    rules.drops_first = scheme_of(c) != PrependScheme::never;
  } else {
    unsupported(c, "this decoder");
  }
  check_steps(c, steps->edits.size());
}

}  // namespace flatshard
