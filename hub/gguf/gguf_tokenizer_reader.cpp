#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <sys/stat.h>

#include "hub/gguf/gguf_patterns.h"
#include "hub/gguf/gguf_tokenizer.h"
#include "runtime/json.h"
#include "runtime/temporary.h"
#include "runtime/text.h"
#include "runtime/utf8.h"
#include "runtime/whole_file.h"
#include "text/tokenizer/tokenizer_file.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;
using namespace gguf_token;
using nlohmann::ordered_json;

constexpr char kSpace[] = "\u2581";

// A folder among the system's temporary files. The destructor removes it with its content.
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

// Merges for SentencePiece's tokens, which have scores: any pair that makes a token may merge.
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
    if (is_llama())
      sentence_pieces(out);
    else if (model == "gpt2")
      byte_level(out);
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
    out["add_bos_token"] = added_bos().has_value();
    out["add_eos_token"] = added_eos().has_value();
    out["clean_up_tokenization_spaces"] = false;
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

  bool is_llama() const { return file_.value<std::string>(key("model")) == "llama"; }

  std::string pattern() const {
    const auto* name = file_.find_value<std::string>(key("pre"));
    return name && *name != "default" ? *name : "gpt-2";
  }
  // Returns null if the name of the pattern is unknown.
  const PatternRow* pattern_row() const {
    for (const PatternRow& row : pattern_rows())
      if (row.name == pattern()) return &row;
    return nullptr;
  }

  // The token that is added to every text, if there is one. `absent` is llama.cpp's default for files without
  // the flag.
  std::optional<int64_t> added_token(const char* flag, const char* token, bool absent) const {
    const bool* own = file_.find_value<bool>(key(flag));
    const std::optional<int64_t> id = id_of(token);
    check(id || !own || !*own, file_.path(), ": ", key(flag), " is true, but ", key(token), " is missing");
    return (own ? *own : absent) ? id : std::nullopt;
  }
  std::optional<int64_t> added_bos() const {
    const PatternRow* row = is_llama() ? nullptr : pattern_row();
    return added_token("add_bos_token", "bos_token_id", is_llama() || (row && row->adds_bos));
  }
  std::optional<int64_t> added_eos() const { return added_token("add_eos_token", "eos_token_id", false); }

  // A post-processor that adds the same tokens; null if there are none.
  ordered_json post_processor() const {
    const std::optional<int64_t> bos = added_bos(), eos = added_eos();
    if (!bos && !eos) return nullptr;
    ordered_json specials = ordered_json::object();
    const auto special = [&](int64_t id, int type) -> ordered_json {
      const std::string& token = tokens_[static_cast<size_t>(id)];
      specials[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
      return {{"SpecialToken", {{"id", token}, {"type_id", type}}}};
    };
    const auto around = [&](const char* text, int type, ordered_json& to) {
      if (bos) to.push_back(special(*bos, type));
      to.push_back({{"Sequence", {{"id", text}, {"type_id", type}}}});
      if (eos) to.push_back(special(*eos, type));
    };
    ordered_json single = ordered_json::array(), pair = single;
    around("A", 0, single);
    around("A", 0, pair);
    around("B", 1, pair);
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", specials}};
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

  // Hugging Face's tokenizers numbers an added token outside of the vocabulary by its own rule, whatever its
  // id in the file, and takes the size of the vocabulary as the next free id. So the vocabulary has all
  // tokens, except unused ones after the last used token, which only pad the embedding, and tokens with the
  // text of another token.
  ordered_json vocabulary() const {
    size_t end = tokens_.size();
    while (end > 0 && types_[end - 1] == unused) --end;
    std::unordered_map<std::string_view, size_t> ids;
    for (const bool used : {true, false})
      for (size_t id = 0; id < end; ++id)
        if ((types_[id] != unused) == used)
          check(ids.emplace(tokens_[id], id).second || !used, file_.path(), ": token ", id, " \"",
                printable(tokens_[id]), "\" is there twice");
    ordered_json::object_t vocabulary;
    for (size_t id = 0; id < end; ++id)
      if (ids.at(tokens_[id]) == id) vocabulary.emplace_back(tokens_[id], id);
    return vocabulary;
  }

  void byte_level(ordered_json& out) const {
    const PatternRow* const row = pattern_row();
    check(
        row != nullptr, file_.path(), ": ", key("pre"), " is \"", printable(pattern()),
        "\", which is not supported: copy tokenizer.json from the model's Hugging Face folder into a folder "
        "and set data.tokenizer to it");
    ordered_json merges = ordered_json::array();
    for (const std::string& merge : file_.value<std::vector<std::string>>(key("merges"))) {
      check(valid_utf8_prefix(merge) == merge.size(), file_.path(), ": a merge is not UTF-8");
      merges.push_back(merge);
    }
    out["normalizer"] = nullptr;
    out["pre_tokenizer"] = byte_level_steps(*row);
    out["post_processor"] = post_processor();
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
    out["post_processor"] = post_processor();
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
