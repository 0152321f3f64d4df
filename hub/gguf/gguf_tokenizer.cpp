#include "hub/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "checkpoint/json_text.h"
#include "runtime/temporary.h"
#include "runtime/text.h"
#include "runtime/utf8.h"
#include "runtime/whole_file.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_file.h"
#include "text/words/known_pattern.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kMostBytes = int64_t{64} << 20;  // of a tokenizer.json
constexpr char kSpace[] = "\u2581";

// The types of tokens, by their numbers in the file.
enum TokenType : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

// ---- patterns ----

constexpr char kOneDigit[] = R"(\p{N})";
constexpr char kTekkenPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kGpt4oPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// One row for each of llama.cpp's names that Flatshard can tell by its patterns, which cut one after the
// other. Where several names have the same, the first is written unless ignore_merges decides.
struct PatternRow {
  const char* name;
  std::vector<std::string> patterns;
  bool ignore_merges = false;
};

const std::vector<PatternRow>& pattern_rows() {
  static const std::vector<PatternRow> rows{
      {"gpt-2", {kGpt2Pattern}},
      {"smollm", {kOneDigit, kGpt2Pattern}},
      {"smaug-bpe", {kLlama3Pattern}},
      {"llama-bpe", {kLlama3Pattern}, true},
      {"qwen2", {kQwen2Pattern}},
      {"tekken", {kTekkenPattern}, true},
      {"gpt-4o", {kGpt4oPattern}},
      {"dbrx", {kLlama3Pattern}},
      {"llama3", {kLlama3Pattern}, true},
      {"starcoder", {kOneDigit, kGpt2Pattern}},
      {"refact", {kOneDigit, kGpt2Pattern}},
      {"deepseek-r1-qwen", {kQwen2Pattern}},
      {"glm4", {kLlama3Pattern}, true},
      {"pixtral", {kLlama3Pattern}, true},
  };
  return rows;
}

// The steps of a component, without Sequences around them.
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

// The patterns by which a byte-level tokenizer cuts words; one that is "" is none of a regular expression.
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

// ---- writing ----

struct Source {
  TokenizerParts parts;
  json file;  // of tokenizer.json; null for GPT-2's files
  std::string path;
};

Source read_source(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  if (fs::exists(path)) {
    const std::string text = read_whole_file(path, kMostBytes);
    TokenizerParts parts = parse_tokenizer_json(text, path);  // checks it
    return {std::move(parts), parse_json<json>(text), path};
  }
  for (const auto& [tokens, merges] :
       {std::pair{"vocab.json", "merges.txt"}, std::pair{"encoder.json", "vocab.bpe"}}) {
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

// Of every id of the model's vocabulary.
struct TokenTable {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
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
    table.types[id] = added.special ? control : user_defined;
    std::string& text = table.tokens[id];
    if (spaces && !added.special)
      for (size_t at = text.find(kSpace); at != text.npos; at = text.find(kSpace, at))
        text.replace(at, sizeof kSpace - 1, " ");
  }
  if (spaces && parts.options.unk) table.types[static_cast<size_t>(*parts.options.unk)] = unknown;
  return table;
}

// Whether a text gets a space in front.
bool prepends_space(const json& file) {
  for (const json& step : steps_of(member(file, "normalizer"), "normalizers"))
    if (step.at("type") == "Prepend") return true;
  for (const json& step : steps_of(member(file, "pre_tokenizer"), "pretokenizers"))
    if (step.at("type") == "Metaspace") return step.value("prepend_scheme", "always") != "never";
  return false;
}

// The earlier a token's first merge, the higher its score. llama.cpp merges any two tokens that make a third:
// returns how many pairs it has that the tokenizer lacks.
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

// ---- reading ----

// A folder among the system's temporary files, removed with what is in it.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : folder_((fs::temp_directory_path() / name).string(),
                [](const char* path) { return mkdir(path, 0700) == 0; }) {}
  ~TemporaryFolder() {
    std::error_code ignored;
    for (const fs::directory_entry& file : fs::directory_iterator(path(), ignored))
      fs::remove(file.path(), ignored);
  }
  const std::string& path() const { return folder_.path(); }

 private:
  Temporary folder_;
};

// SentencePiece's tokens have scores; the pairs that may merge are all that make a token.
std::vector<std::pair<std::string, std::string>> merges_by_score(const std::vector<std::string>& tokens,
                                                                 const std::vector<double>& scores,
                                                                 const std::vector<int64_t>& types) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < tokens.size(); ++id)
    if (types[id] == normal) ids.emplace(tokens[id], id);
  struct Merge {
    double score;
    size_t left, right;
  };
  std::vector<Merge> merges;
  for (const auto& [token, id] : ids)
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left != ids.end() && right != ids.end())
        merges.push_back({scores[id], left->second, right->second});
    }
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tuple(-a.score, a.left, a.right) < std::tuple(-b.score, b.left, b.right);
  });
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Merge& merge : merges) pairs.emplace_back(tokens[merge.left], tokens[merge.right]);
  return pairs;
}

ordered_json byte_level_steps(const PatternRow& row) {
  ordered_json steps = ordered_json::array();
  for (const std::string& pattern : row.patterns)
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

class TokenizerReader {
 public:
  explicit TokenizerReader(const GgufFile& file)
      : file_(file), tokens_(file.value<std::vector<std::string>>(key("tokens"))) {
    for (size_t id = 0; id < tokens_.size(); ++id)
      check(valid_utf8_prefix(tokens_[id]) == tokens_[id].size(), file.path(), ": token ", id,
            " is not UTF-8");
    const auto* types = file.find_value<std::vector<int64_t>>(key("token_type"));
    types_ = types ? *types : std::vector<int64_t>(tokens_.size(), normal);
    check(types_.size() == tokens_.size(), file.path(), ": ", key("token_type"), " has ", types_.size(),
          " entries, must have one for each of ", tokens_.size(), " tokens");
  }

  std::string tokenizer_json() const {
    const auto& model = file_.value<std::string>(key("model"));
    ordered_json out{{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
    out["added_tokens"] = added_tokens();
    if (model == "gpt2")
      byte_level(out);
    else if (model == "llama")
      sentence_pieces(out);
    else
      fail(str(file_.path(), ": ", key("model"), " is \"", printable(model), "\", must be gpt2 or llama"));
    return json_text(out) + '\n';
  }

  std::string tokenizer_config() const {
    ordered_json out;
    for (const auto& [ours, theirs] : {std::pair{"bos_token", "bos_token_id"},
                                       {"eos_token", "eos_token_id"},
                                       {"pad_token", "padding_token_id"},
                                       {"unk_token", "unknown_token_id"}})
      if (const auto id = id_of(theirs)) out[ours] = tokens_[static_cast<size_t>(*id)];
    for (const auto& [ours, theirs] :
         {std::pair{"add_bos_token", "add_bos_token"}, {"add_eos_token", "add_eos_token"}})
      if (const bool* flag = file_.find_value<bool>(key(theirs))) out[ours] = *flag;
    // llama.cpp adds BOS in front of "llama" tokens unless the file says otherwise.
    if (!out.contains("add_bos_token") && file_.value<std::string>(key("model")) == "llama")
      out["add_bos_token"] = out.contains("bos_token");
    if (const auto* chat = file_.find_value<std::string>("tokenizer.chat_template"))
      out["chat_template"] = *chat;
    out["tokenizer_class"] = "PreTrainedTokenizerFast";
    return json_text(out, 2) + '\n';
  }

  std::string generation_config() const {
    ordered_json out, ends = ordered_json::array();
    if (const auto id = id_of("bos_token_id")) out["bos_token_id"] = *id;
    for (const char* end : {"eos_token_id", "eot_token_id"})
      if (const auto id = id_of(end); id && std::find(ends.begin(), ends.end(), *id) == ends.end())
        ends.push_back(*id);
    out["eos_token_id"] = ends;
    if (const auto id = id_of("padding_token_id")) out["pad_token_id"] = *id;
    return json_text(out, 2) + '\n';
  }

 private:
  static std::string key(const char* name) { return str("tokenizer.ggml.", name); }

  std::optional<int64_t> id_of(const char* name) const {
    const int64_t* id = file_.find_value<int64_t>(key(name));
    if (!id) return {};
    check(*id >= 0 && *id < std::ssize(tokens_), file_.path(), ": ", key(name), " is ", *id,
          ", must be one of ", tokens_.size(), " tokens");
    return *id;
  }

  ordered_json added_tokens() const {
    ordered_json added = ordered_json::array();
    for (size_t id = 0; id < tokens_.size(); ++id)
      if (types_[id] == control || types_[id] == unknown || types_[id] == user_defined)
        added.push_back({{"id", id},
                         {"content", tokens_[id]},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", types_[id] != user_defined}});
    return added;
  }

  ordered_json vocabulary() const {
    ordered_json vocabulary = ordered_json::object();
    for (size_t id = 0; id < tokens_.size(); ++id)
      if (types_[id] == normal || types_[id] == byte || types_[id] == unknown)
        check(vocabulary.emplace(tokens_[id], id).second, file_.path(), ": token ", id, " \"",
              printable(tokens_[id]), "\" is there twice");
    return vocabulary;
  }

  void byte_level(ordered_json& out) const {
    const auto* name = file_.find_value<std::string>(key("pre"));
    const std::string pattern = name && *name != "default" ? *name : "gpt-2";
    const auto row = std::find_if(pattern_rows().begin(), pattern_rows().end(),
                                  [&](const PatternRow& r) { return r.name == pattern; });
    check(
        row != pattern_rows().end(), file_.path(), ": ", key("pre"), " is \"", printable(pattern),
        "\", which is not supported: copy tokenizer.json from the model's Hugging Face folder into a folder "
        "and set model.tokenizer to it");
    ordered_json merges = ordered_json::array();
    for (const std::string& merge : file_.value<std::vector<std::string>>(key("merges"))) {
      check(valid_utf8_prefix(merge) == merge.size(), file_.path(), ": a merge is not UTF-8");
      merges.push_back(merge);
    }
    out["normalizer"] = nullptr;
    out["pre_tokenizer"] = byte_level_steps(*row);
    out["post_processor"] = nullptr;
    out["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}};
    out["model"] = {{"type", "BPE"},
                    {"unk_token", nullptr},
                    {"fuse_unk", false},
                    {"byte_fallback", false},
                    {"ignore_merges", row->ignore_merges},
                    {"vocab", vocabulary()},
                    {"merges", merges}};
  }

  void sentence_pieces(ordered_json& out) const {
    const auto& scores = file_.value<std::vector<double>>(key("scores"));
    check(scores.size() == tokens_.size(), file_.path(), ": ", key("scores"), " has ", scores.size(),
          " entries, must have one for each of ", tokens_.size(), " tokens");
    const bool* prefix = file_.find_value<bool>(key("add_space_prefix"));
    const bool prepends = !prefix || *prefix;
    ordered_json normalizers = ordered_json::array(), decoders = ordered_json::array();
    if (prepends) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
    normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}});
    decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}});
    decoders.push_back({{"type", "ByteFallback"}});
    decoders.push_back({{"type", "Fuse"}});
    if (prepends) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    out["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
    out["pre_tokenizer"] = nullptr;
    out["post_processor"] = nullptr;
    out["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
    ordered_json merges = ordered_json::array();
    for (const auto& [left, right] : merges_by_score(tokens_, scores, types_))
      merges.push_back({left, right});
    const auto unk = id_of("unknown_token_id");
    const bool bytes = std::find(types_.begin(), types_.end(), byte) != types_.end();
    out["model"] = {{"type", "BPE"},
                    {"unk_token", unk ? ordered_json(tokens_[static_cast<size_t>(*unk)]) : ordered_json()},
                    {"fuse_unk", true},
                    {"byte_fallback", bytes},
                    {"ignore_merges", false},
                    {"vocab", vocabulary()},
                    {"merges", merges}};
  }

  const GgufFile& file_;
  const std::vector<std::string>& tokens_;
  std::vector<int64_t> types_;
};

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
  std::vector<std::string> notes;
  out.put("tokenizer.ggml.model", spaces ? "llama" : "gpt2");
  out.put("tokenizer.ggml.pre",
          !from.pattern.empty() ? from.pattern
          : spaces              ? "default"
                   : pattern_name(member(source.file, "pre_tokenizer"), options.ignore_merges, source.path));
  const TokenTable table = token_table(source, from.vocab, spaces);
  out.put("tokenizer.ggml.tokens", table.tokens);
  out.put("tokenizer.ggml.token_type", table.types);
  if (spaces) {
    if (const int64_t other = put_scores(out, source.parts, from.vocab); other > 0)
      notes.push_back(str("llama.cpp may cut some words otherwise: it merges ", counted(other, "pair"),
                          " of tokens that the tokenizer does not merge"));
    out.put("tokenizer.ggml.add_space_prefix", prepends_space(source.file));
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

TokenizerFiles tokenizer_files_of(const GgufFile& file) {
  const auto* model = file.find_value<std::string>("tokenizer.ggml.model");
  if (!model || *model == "none" || *model == "no_vocab") return {};
  const TokenizerReader reader(file);
  TokenizerFiles files{{"tokenizer.json", reader.tokenizer_json()},
                       {"tokenizer_config.json", reader.tokenizer_config()},
                       {"generation_config.json", reader.generation_config()}};
  parse_tokenizer_json(files.at("tokenizer.json"), file.path());  // an Error if it makes no tokenizer
  return files;
}

std::string tokenizer_folder_of(const std::string& model) {
  if (!is_gguf(model)) return model;
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<TemporaryFolder>> folders;
  const std::lock_guard lock(mutex);
  std::unique_ptr<TemporaryFolder>& folder = folders[model];
  if (!folder) {
    folder = std::make_unique<TemporaryFolder>(fs::path(model).stem().string());
    for (const auto& [name, text] : tokenizer_files_of(GgufFile(model)))
      write_whole_file(folder->path() + '/' + name, text);
  }
  return folder->path();
}

}  // namespace flatshard
