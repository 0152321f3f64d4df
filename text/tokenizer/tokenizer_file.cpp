#include "text/tokenizer/tokenizer_file.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/error_context.h"
#include "runtime/json.h"
#include "runtime/json_reader.h"
#include "runtime/utf8.h"
#include "text/tokenizer/byte_letters.h"
#include "text/words/unicode.h"

namespace flatshard {
namespace {

using nlohmann::json;

constexpr int64_t kMostIds = int64_t{1} << 22;  // the largest published vocabularies have about 2^18
constexpr int64_t kMostUnused = int64_t{1} << 16;
constexpr size_t kMostDecoded = size_t{1} << 20;
constexpr size_t kMostAdded = size_t{1} << 17;
constexpr size_t kMostSteps = 64;
constexpr size_t kMostTemplate = 64;  // parts of a template
constexpr int64_t kMostStrips = 1000;
constexpr size_t kMostContent = 64;  // most bytes that replace a match
constexpr char kEndOfText[] = "<|endoftext|>";

json tokenizer_json(std::string_view text, const std::string& path) {
  // A token may contain U+0000.
  return checked_json<json>(text, path,
                            {.members = static_cast<size_t>(kMostIds), .zero_bytes_in_names = true});
}

// ---- the components, strictly: an unknown member is an Error ----

// A member that must not be empty.
std::string text_of(const JsonReader& in, const char* member) {
  const std::string text = in.text(member);
  check(!text.empty(), in.where(), ": \"", member, "\" is empty, must be text");
  return text;
}

// Returns the member "type", and adds it to the component's place in errors.
std::string type_of(JsonReader& in) {
  const std::string type = text_of(in, "type");
  in.label(type);
  return type;
}

[[noreturn]] void unsupported(const JsonReader& in, const std::string& what) {
  fail(in.where() + ": " + what + " is not supported");
}

// Throws an Error if a member is neither read yet nor one of these.
void allow(const JsonReader& in, std::initializer_list<const char*> members) {
  if (const auto unknown = in.unknown_member(members)) unsupported(in, str("the member \"", *unknown, '"'));
}

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
  return with_place(component.where(), [&] { return Pattern::expression(expression); });
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

// Sets `byte_level`, too: whether the model's words are bytes.
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

// The decoder in two parts: `edits` change each token alone, in order; `rules` apply to all tokens.
struct DecoderSteps {
  std::vector<std::function<std::string(const std::string&)>> edits;
  Decoder::Rules rules;
  bool fused = false;
};

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

// ---- the model and its tokens ----

int32_t id_of_json(const json& id, const std::string& token, const std::string& where) {
  check(id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(kMostIds), where,
        ": the id of \"", token, "\" is ", short_json_text(id), ", must be a whole number below ", kMostIds);
  return id.get<int32_t>();
}

Vocabulary vocabulary_of(const json& tokens, const std::string& where) {
  check(tokens.is_object(), where, ": is ", tokens.type_name(), ", must be an object of tokens and ids");
  Vocabulary vocabulary;
  vocabulary.reserve(tokens.size());
  check(!tokens.empty(), where, ": the vocabulary is empty");
  for (const auto& [token, id] : tokens.items()) vocabulary[token] = id_of_json(id, token, where);
  return vocabulary;
}

// Parses "a b", the form of older files, or ["a", "b"].
std::pair<std::string, std::string> merge_of(const json& merge, const std::string& where) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  if (merge.is_string()) {
    const std::string& both = merge.get_ref<const std::string&>();
    const size_t space = both.find(' ');
    if (space != both.npos && both.find(' ', space + 1) == both.npos)
      return {both.substr(0, space), both.substr(space + 1)};
  }
  fail(where + ": must be two tokens, as in [\"a\", \"b\"] or \"a b\"");
}

// Throws an Error unless the member is missing, null, "", 0 or false.
void refuse(const JsonReader& in, const char* member) {
  if (!in.has(member)) return;
  const json& found = in.value(member);
  check(found == "" || found == false || found == 0, in.where(), ": \"", member, "\" is ",
        short_json_text(found), ", which is not supported: only null is");
}

void read_model(JsonReader model, TokenizerParts* parts) {
  if (model.has("type") && type_of(model) != "BPE") unsupported(model, "this model");
  for (const char* member : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    refuse(model, member);
  allow(model, {"vocab", "merges", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges", "dropout",
                "continuing_subword_prefix", "end_of_word_suffix"});
  parts->vocabulary = vocabulary_of(model.value("vocab"), model.where() + ": vocab");
  const json& merges = model.value("merges");
  check(merges.is_array(), model.where(), ": \"merges\" is ", merges.type_name(), ", must be an array");
  for (size_t i = 0; i < merges.size(); ++i)
    parts->merges.push_back(merge_of(merges[i], str(model.where(), ": merges[", i, ']')));
  BpeOptions& options = parts->options;
  options.byte_fallback = model.flag("byte_fallback", false);
  options.fuse_unk = model.flag("fuse_unk", false);
  options.ignore_merges = model.flag("ignore_merges", false);
  if (!model.has("unk_token")) return;
  const std::string unk = text_of(model, "unk_token");
  const auto found = parts->vocabulary.find(unk);
  check(found != parts->vocabulary.end(), model.where(), ": unk_token \"", unk,
        "\" is not in the vocabulary");
  options.unk = found->second;
}

AddedToken added_token_of(const JsonReader& c) {
  allow(c, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  return {.id = static_cast<int32_t>(c.whole("id", 0, kMostIds - 1)),
          .content = text_of(c, "content"),
          .single_word = c.flag("single_word", false),
          .lstrip = c.flag("lstrip", false),
          .rstrip = c.flag("rstrip", false),
          .normalized = c.flag("normalized", true),
          .special = c.flag("special", false)};
}

// Fills in the token of every id. Throws an Error if two tokens have the same id.
void number_tokens(TokenizerParts* parts, const std::string& path) {
  int32_t largest = -1;
  for (const auto& [token, id] : parts->vocabulary) largest = std::max(largest, id);
  for (const AddedToken& added : parts->added) largest = std::max(largest, added.id);
  parts->vocab = int64_t{largest} + 1;
  const int64_t tokens = std::ssize(parts->vocabulary) + std::ssize(parts->added);
  check(parts->vocab <= tokens + kMostUnused, path, ": the largest id is ", largest, ", but there are only ",
        tokens, " tokens: at most ", kMostUnused, " ids may be unused");
  parts->tokens.resize(static_cast<size_t>(parts->vocab));
  const auto put = [&](const std::string& token, int32_t id) {
    std::optional<std::string>& place = parts->tokens[static_cast<size_t>(id)];
    check(!place || *place == token, path, ": \"", token, "\" and \"", place.value_or(""),
          "\" have the same id ", id);
    place = token;
  };
  for (const auto& [token, id] : parts->vocabulary) put(token, id);
  for (const AddedToken& added : parts->added) {
    const auto found = parts->vocabulary.find(added.content);
    check(found == parts->vocabulary.end() || found->second == added.id, path, ": the added token \"",
          added.content, "\" has the id ", added.id, ", but the vocabulary has ",
          found == parts->vocabulary.end() ? 0 : found->second);
    put(added.content, added.id);
  }
}

std::optional<unsigned char> byte_of(const std::string& token) {
  constexpr std::string_view kDigits = "0123456789ABCDEFabcdef";
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  if (kDigits.find(token[3]) == kDigits.npos || kDigits.find(token[4]) == kDigits.npos) return std::nullopt;
  return static_cast<unsigned char>(std::stoi(token.substr(3, 2), nullptr, 16));
}

Decoder::Token decoded(std::string token, const DecoderSteps& steps) {
  for (const auto& edit : steps.edits) {
    token = edit(token);
    check(token.size() <= kMostDecoded, "the decoder of the tokenizer turns a token into ", token.size(),
          " bytes, must be at most ", kMostDecoded);
  }
  if (steps.rules.kind == Decoder::Kind::bytes)
    if (std::optional<std::string> bytes = bytes_of_letters(token)) return {std::move(*bytes)};
  if (steps.rules.kind == Decoder::Kind::fallback)
    if (const auto byte = byte_of(token)) return {std::string(1, static_cast<char>(*byte)), true};
  return {std::move(token)};
}

// An added token that is found in normalized text is decoded to its normalized text.
void set_decoder(const DecoderSteps& steps, TokenizerParts* parts) {
  parts->decoding = steps.rules;
  for (const std::optional<std::string>& token : parts->tokens)
    parts->decoded.push_back(token ? decoded(*token, steps) : Decoder::Token{kReplacementCharacter});
  Normalizer::Scratch scratch;
  for (const AddedToken& added : parts->added)
    if (added.normalized)
      parts->decoded[static_cast<size_t>(added.id)] =
          decoded(std::string(parts->normalizer.apply({.text = added.content}, scratch).text), steps);
}

}  // namespace

TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& path) {
  const JsonReader file(path, tokenizer_json(text, path));
  TokenizerParts parts;
  read_model(file.object("model"), &parts);
  if (file.has("added_tokens"))
    for (const JsonReader& token : file.objects("added_tokens", kMostAdded))
      parts.added.push_back(added_token_of(token));
  number_tokens(&parts, path);
  if (file.has("normalizer")) read_normalizer(file.object("normalizer"), &parts.normalizer);
  if (file.has("pre_tokenizer"))
    read_pre_tokenizer(file.object("pre_tokenizer"), &parts.pre_tokenizer, &parts.options.byte_level);
  if (parts.options.byte_level && parts.options.byte_fallback)
    for (int byte = 0; byte < 256; ++byte)
      check(parts.vocabulary.contains(letters_of_bytes(std::string(1, static_cast<char>(byte)))), path,
            ": byte_fallback with the pre-tokenizer ByteLevel is supported only if every byte has a token; ",
            byte, " has none");
  if (file.has("post_processor")) read_post_processor(file.object("post_processor"), &parts);
  DecoderSteps steps;
  if (file.has("decoder"))
    read_decoder(file.object("decoder"), &steps);
  else
    steps.rules.separator = " ";
  set_decoder(steps, &parts);
  return parts;
}

TokenizerParts parse_gpt2_files(std::string_view vocabulary, const std::string& vocabulary_path,
                                std::string_view merges, const std::string& merges_path) {
  TokenizerParts parts;
  parts.vocabulary = vocabulary_of(tokenizer_json(vocabulary, vocabulary_path), vocabulary_path);
  int64_t line_number = 0;
  for (size_t at = 0; at < merges.size();) {
    const size_t end = std::min(merges.find('\n', at), merges.size());
    std::string_view line = merges.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    check(space != line.npos && line.find(' ', space + 1) == line.npos, merges_path, ":", line_number,
          ": must be two tokens with a space between them");
    parts.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  parts.options.byte_level = true;
  parts.pre_tokenizer.add(split_step(Pattern::expression(kGpt2Pattern), SplitBehavior::isolated, false));
  if (const auto found = parts.vocabulary.find(kEndOfText); found != parts.vocabulary.end())
    parts.added.push_back({.id = found->second, .content = kEndOfText, .special = true});
  number_tokens(&parts, vocabulary_path);
  DecoderSteps steps;
  steps.rules.kind = Decoder::Kind::bytes;
  set_decoder(steps, &parts);
  return parts;
}

void parse_token_names(std::string_view text, const std::string& path, TokenNames* names) {
  const JsonReader file(path, tokenizer_json(text, path));
  const auto read_name = [&](const char* member, std::string* name) {
    if (!name->empty() || !file.has(member)) return;
    *name = file.value(member).is_object() ? text_of(file.object(member), "content") : text_of(file, member);
  };
  read_name("bos_token", &names->bos);
  read_name("eos_token", &names->eos);
  read_name("pad_token", &names->pad);
  const auto read_flag = [&](const char* member, std::optional<bool>* flag) {
    if (!*flag && file.has(member)) *flag = file.flag(member, false);
  };
  read_flag("add_bos_token", &names->add_bos);
  read_flag("add_eos_token", &names->add_eos);
}

}  // namespace flatshard
