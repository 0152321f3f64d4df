#include "hub/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "hub/gguf/gguf_patterns.h"
#include "runtime/json.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_file.h"
#include "text/words/known_pattern.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;
using namespace gguf_token;
using nlohmann::json;

constexpr int64_t kMostBytes = int64_t{64} << 20;  // most bytes of a tokenizer.json
constexpr char kSpace[] = "\u2581";

// The steps of a component, with nested Sequences flattened.
std::vector<json> steps_of(const json& component, const char* list) {
  if (component.is_null()) return {};
  if (component.at("type") != "Sequence") return {component};
  std::vector<json> steps;
  for (const json& step : component.at(list))
    for (json& inner : steps_of(step, list)) steps.push_back(std::move(inner));
  return steps;
}

bool is_regex_split(const json& step) {
  return step.at("type") == "Split" && step.at("pattern").contains("Regex") &&
         step.at("behavior") == "Isolated" && !step.value("invert", false);
}

// The patterns by which a byte-level tokenizer cuts words; "" for a step that is not such a pattern.
std::vector<std::string> patterns_of(const json& pre_tokenizer) {
  std::vector<std::string> patterns;
  for (const json& step : steps_of(pre_tokenizer, "pretokenizers")) {
    if (is_regex_split(step))
      patterns.push_back(step["pattern"]["Regex"].get<std::string>());
    else if (step["type"] == "Digits" && step.value("individual_digits", false))
      patterns.emplace_back(kOneDigit);
    else if (step["type"] != "ByteLevel")
      patterns.emplace_back();
    else if (step.value("use_regex", true))
      patterns.emplace_back(kGpt2Pattern);
  }
  return patterns;
}

std::string pattern_name(const json& pre_tokenizer, bool ignore_merges, const std::string& path) {
  const std::vector<std::string> patterns = patterns_of(pre_tokenizer);
  const PatternRow* found = nullptr;
  for (const PatternRow& row : pattern_rows())
    if (row.patterns == patterns &&
        (!found || (found->ignore_merges != ignore_merges && row.ignore_merges == ignore_merges)))
      found = &row;
  check(found != nullptr, path,
        ": llama.cpp knows patterns that cut text into words by name, and none of the known ones is this "
        "pre_tokenizer: name its own with --pattern, as llama.cpp's converter from Hugging Face lists them");
  return found->name;
}

struct Source {
  TokenizerParts parts;
  json file;  // content of tokenizer.json; a substitute for GPT-2's files
  std::string path;
};

Source read_source(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  if (fs::exists(path)) {
    const std::string text = read_whole_file(path, kMostBytes);
    TokenizerParts parts = parse_tokenizer_json(text, path);  // validates the text
    return {std::move(parts), parse_json<json>(text), path};
  }
  for (const auto& [tokens, merges] : kGpt2Files) {
    const std::string tokens_path = str(folder, '/', tokens), merges_path = str(folder, '/', merges);
    if (!fs::exists(tokens_path)) continue;
    return {parse_gpt2_files(read_whole_file(tokens_path, kMostBytes), tokens_path,
                             read_whole_file(merges_path, kMostBytes), merges_path),
            {{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}}},
            tokens_path};
  }
  fail(folder + ": has no tokenizer.json, nor vocab.json and merges.txt");
}

const json& member(const json& file, const char* name) {
  static const json none;
  const auto found = file.find(name);
  return found == file.end() ? none : *found;
}

bool is_byte_token(const std::string& token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

// The text and type of every id of the model's vocabulary.
struct TokenTable {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<std::string> added_bytes;  // byte tokens that the tokenizer also finds in texts
};

TokenTable token_table(const Source& source, int64_t vocab, bool spaces) {
  const TokenizerParts& parts = source.parts;
  TokenTable table;
  for (int64_t id = 0; id < vocab; ++id) {
    const std::optional<std::string>* token =
        id < std::ssize(parts.tokens) ? &parts.tokens[static_cast<size_t>(id)] : nullptr;
    const bool there = token && *token;
    table.tokens.push_back(there ? **token : str("[PAD", id, ']'));
    table.types.push_back(!there ? unused : spaces && is_byte_token(**token) ? byte : normal);
  }
  for (const AddedToken& added : parts.added) {
    const auto id = static_cast<size_t>(added.id);
    if (table.types[id] == byte) {
      table.added_bytes.push_back(added.content);
      continue;
    }
    table.types[id] = added.special ? control : user_defined;
    std::string& text = table.tokens[id];
    if (spaces && !added.special)
      for (size_t at = text.find(kSpace); at != text.npos; at = text.find(kSpace, at))
        text.replace(at, sizeof kSpace - 1, " ");
  }
  if (spaces && parts.options.unk) table.types[static_cast<size_t>(*parts.options.unk)] = unknown;
  return table;
}

// The texts before which a space is inserted: "always", each text between added tokens, as in llama.cpp;
// "first", only a text that begins the input; or "never".
std::string prepend_scheme(const json& file) {
  for (const json& step : steps_of(member(file, "normalizer"), "normalizers"))
    if (step.at("type") == "Prepend") return "always";
  for (const json& step : steps_of(member(file, "pre_tokenizer"), "pretokenizers"))
    if (step.at("type") == "Metaspace") return step.value("prepend_scheme", "always");
  return "never";
}

// The types of the normalizer's steps that llama.cpp lacks: it only replaces and prepends spaces.
std::string lost_normalizers(const json& file) {
  std::string types;
  for (const json& step : steps_of(member(file, "normalizer"), "normalizers")) {
    const bool of_spaces =
        step.at("type") == "Prepend" || (step.at("type") == "Replace" && step.value("content", "") == kSpace);
    if (!of_spaces) types += (types.empty() ? "" : ", ") + step["type"].get<std::string>();
  }
  return types;
}

std::string some_of(const std::vector<std::string>& tokens) {
  return str(printable(tokens.front()), tokens.size() > 1 ? str(" and ", tokens.size() - 1, " more") : "");
}

// Notes on the differences between llama.cpp and the tokenizer.
std::vector<std::string> differences_of(const Source& source, const TokenTable& table, bool spaces) {
  std::vector<std::string> notes, stripping;
  if (const std::string types = lost_normalizers(source.file); !types.empty())
    notes.push_back(str("llama.cpp does not normalize text: the tokenizer's ", types, " is left out"));
  if (spaces && prepend_scheme(source.file) == "first")
    notes.push_back(
        "the tokenizer's Metaspace has prepend_scheme \"first\": llama.cpp also puts a space in front of "
        "text "
        "that follows an added token, where the tokenizer puts none");
  if (!table.added_bytes.empty())
    notes.push_back(str("the tokenizer finds ", some_of(table.added_bytes),
                        " in text as added tokens: llama.cpp reads the characters as text"));
  for (const AddedToken& added : source.parts.added)
    if (added.lstrip || added.rstrip || added.single_word) stripping.push_back(added.content);
  if (!stripping.empty())
    notes.push_back(str("lstrip, rstrip and single_word of the added token ", some_of(stripping),
                        " have no key in GGUF: llama.cpp finds the token wherever its text is, and keeps the "
                        "spaces around it"));
  return notes;
}

// The score of a token is higher if it is merged earlier. llama.cpp merges any two tokens that make a third;
// returns the number of such pairs that the tokenizer does not merge.
int64_t put_scores(GgufWriter& out, const TokenizerParts& parts, int64_t vocab) {
  std::vector<float> scores(static_cast<size_t>(vocab), 0.0f);
  std::map<std::pair<std::string_view, std::string_view>, bool> merges;
  std::vector<bool> scored(scores.size());
  for (size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const auto& [left, right] = parts.merges[rank];
    merges[{left, right}] = true;
    const auto id = static_cast<size_t>(parts.vocabulary.at(left + right));
    if (!scored[id]) scores[id] = -static_cast<float>(rank);
    scored[id] = true;
  }
  out.put("tokenizer.ggml.scores", scores);
  int64_t other = 0;
  for (const auto& [token, id] : parts.vocabulary)
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const std::string_view left = std::string_view(token).substr(0, cut),
                             right = std::string_view(token).substr(cut);
      if (parts.vocabulary.contains(left) && parts.vocabulary.contains(right) &&
          !merges.contains({left, right}))
        ++other;
    }
  return other;
}

void put_special(GgufWriter& out, const GgufTokenizerSource& source, const Tokenizer& tokenizer) {
  const auto put = [&](const char* key, std::optional<int32_t> id) {
    if (id) out.put_size(str("tokenizer.ggml.", key), *id);
  };
  std::optional<int32_t> eos = tokenizer.eos(), turn;
  if (!eos && !source.ends.empty()) eos = source.ends.front();
  for (const int32_t end : source.ends)
    if (end != eos && !turn) turn = end;
  put("bos_token_id", tokenizer.bos());
  put("eos_token_id", eos);
  put("eot_token_id", turn);
  put("padding_token_id", tokenizer.pad());
  const std::vector<int32_t> all = tokenizer.encode("a", true).ids, plain = tokenizer.encode("a", false).ids;
  const bool added = all.size() > plain.size();
  out.put("tokenizer.ggml.add_bos_token", added && tokenizer.bos() && all.front() == *tokenizer.bos());
  out.put("tokenizer.ggml.add_eos_token", added && tokenizer.eos() && all.back() == *tokenizer.eos());
}

}  // namespace

std::vector<std::string> put_gguf_tokenizer(GgufWriter& out, const GgufTokenizerSource& from) {
  if (from.folder.empty()) {
    out.put("tokenizer.ggml.model", "none");
    return {"the model has no tokenizer: llama.cpp takes and makes token numbers only"};
  }
  const Source source = read_source(from.folder);
  const BpeOptions& options = source.parts.options;
  check(source.parts.vocab <= from.vocab, source.path, ": has ", source.parts.vocab,
        " tokens, but the vocabulary of the model is ", from.vocab);
  const bool spaces = !options.byte_level;
  check(!spaces || options.byte_fallback, source.path,
        ": is neither byte-level nor has byte_fallback, which llama.cpp requires: this tokenizer cannot be "
        "written as GGUF");
  out.put("tokenizer.ggml.model", spaces ? "llama" : "gpt2");
  out.put("tokenizer.ggml.pre",
          !from.pattern.empty() ? from.pattern
          : spaces              ? "default"
                   : pattern_name(member(source.file, "pre_tokenizer"), options.ignore_merges, source.path));
  const TokenTable table = token_table(source, from.vocab, spaces);
  std::vector<std::string> notes = differences_of(source, table, spaces);
  out.put("tokenizer.ggml.tokens", table.tokens);
  out.put("tokenizer.ggml.token_type", table.types);
  if (spaces) {
    if (const int64_t other = put_scores(out, source.parts, from.vocab); other > 0)
      notes.push_back(str("llama.cpp may cut some words otherwise: it merges ", counted(other, "pair"),
                          " of tokens that the tokenizer does not merge"));
    out.put("tokenizer.ggml.add_space_prefix", prepend_scheme(source.file) != "never");
    if (options.unk) out.put_size("tokenizer.ggml.unknown_token_id", *options.unk);
  } else {
    std::vector<std::string> merges;
    for (const auto& [left, right] : source.parts.merges) merges.push_back(left + ' ' + right);
    out.put("tokenizer.ggml.merges", merges);
  }
  put_special(out, from, Tokenizer(from.folder));
  if (!from.chat_template.empty()) out.put("tokenizer.chat_template", from.chat_template);
  return notes;
}

}  // namespace flatshard
