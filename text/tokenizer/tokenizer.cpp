#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "runtime/check.h"
#include "runtime/hub_id.h"
#include "runtime/sha256.h"
#include "runtime/whole_file.h"
#include "text/tokenizer/tokenizer_file.h"
#include "text/words/valid_text.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;  // most bytes of a file
constexpr char kConfigFile[] = "tokenizer_config.json";

std::string hash_of(std::initializer_list<std::string_view> texts) {
  Sha256 hash;
  for (const std::string_view text : texts) {
    const uint64_t size = text.size();
    hash.add(&size, sizeof size);
    hash.add(text.data(), text.size());
  }
  return hash.hex();
}

TokenNames names_beside(const fs::path& folder) {
  TokenNames names;
  for (const char* name : {kConfigFile, "special_tokens_map.json"}) {
    const std::string path = (folder / name).string();
    if (fs::exists(path)) parse_token_names(read_whole_file(path, kMostBytes), path, &names);
  }
  return names;
}

}  // namespace

struct Tokenizer::Scratch {
  Bpe::Scratch words;
  Normalizer::Scratch texts;
};

struct Tokenizer::Data {
  Data(TokenizerParts parts, const TokenNames& names, const std::string& path, std::string file_hash);

  void set_ends(const TokenNames& names, const std::string& path);
  std::optional<int32_t> id_of(std::string_view token) const {
    const auto found = ids.find(token);
    return found == ids.end() ? std::nullopt : std::optional(found->second);
  }

  int64_t vocab;
  Vocabulary ids;
  std::vector<std::optional<std::string>> tokens;
  std::vector<bool> special;
  AddedTokenFinder raw, normalized;  // added tokens found before and after normalization
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe model;
  std::vector<int32_t> prefix, suffix;
  Decoder decoder;
  std::optional<int32_t> bos, eos, pad;
  std::string identity;

  std::mutex mutex;
  // Unused scratches. There are as many as threads ever encoded at the same time.
  std::vector<std::unique_ptr<Scratch>> idle;
};

namespace {

std::vector<int32_t> special_ids(const TokenizerParts& parts) {
  std::vector<int32_t> ids;
  for (const AddedToken& token : parts.added)
    if (token.special) ids.push_back(token.id);
  return ids;
}

}  // namespace

Tokenizer::Data::Data(TokenizerParts parts, const TokenNames& names, const std::string& path,
                      std::string file_hash)
    : vocab(parts.vocab),
      ids(parts.vocabulary),
      tokens(std::move(parts.tokens)),
      special(static_cast<size_t>(vocab)),
      normalizer(std::move(parts.normalizer)),
      pre_tokenizer(std::move(parts.pre_tokenizer)),
      model(parts.vocabulary, parts.merges, special_ids(parts), parts.options, path),
      prefix(std::move(parts.prefix)),
      suffix(std::move(parts.suffix)),
      decoder(std::move(parts.decoded), std::move(parts.decoding)) {
  std::stable_partition(parts.added.begin(), parts.added.end(),
                        [](const AddedToken& token) { return token.special; });
  for (const AddedToken& token : parts.added) {
    ids[token.content] = token.id;
    special[static_cast<size_t>(token.id)] = token.special;
    if (!token.normalized) {
      raw.add(token.content, token, path);
      continue;
    }
    Normalizer::Scratch scratch;
    normalized.add(std::string(normalizer.apply({.text = token.content}, scratch).text), token, path);
  }
  bos = id_of(names.bos);
  eos = id_of(names.eos);
  pad = id_of(names.pad);
  set_ends(names, path);
  Sha256 all;
  for (const std::vector<int32_t>* side : {&prefix, &suffix}) {
    for (const int32_t id : *side) all.add(&id, sizeof id);
    file_hash += all.hex();
  }
  identity = hash_of({file_hash});
}

// Applies add_bos_token and add_eos_token.
void Tokenizer::Data::set_ends(const TokenNames& names, const std::string& path) {
  const auto set = [&](const char* flag, const std::optional<bool>& wanted, std::optional<int32_t> id,
                       std::vector<int32_t>* side) {
    if (!wanted) return;
    check(id || !*wanted, path, ": ", flag, " is true in ", kConfigFile,
          ", but the token it adds is not known");
    const bool present = id && std::find(side->begin(), side->end(), *id) != side->end();
    if (*wanted && !present) side->insert(side == &prefix ? side->begin() : side->end(), *id);
    if (!*wanted && present) std::erase(*side, *id);
  };
  set("add_bos_token", names.add_bos, bos, &prefix);
  set("add_eos_token", names.add_eos, eos, &suffix);
}

// Lends a scratch to one call.
class Tokenizer::Lease {
 public:
  explicit Lease(Data& data) : data_(data) {
    const std::lock_guard lock(data.mutex);
    if (data.idle.empty()) {
      scratch_ = std::make_unique<Scratch>();
    } else {
      scratch_ = std::move(data.idle.back());
      data.idle.pop_back();
    }
  }
  ~Lease() {
    const std::lock_guard lock(data_.mutex);
    data_.idle.push_back(std::move(scratch_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Scratch* operator->() const { return scratch_.get(); }

 private:
  Data& data_;
  std::unique_ptr<Scratch> scratch_;
};

Tokenizer::Tokenizer(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  return Tokenizer(
      std::make_unique<Data>(parse_tokenizer_json(json, name), TokenNames{}, name, hash_of({json})));
}

Tokenizer::Tokenizer(const std::string& path) {
  if (!fs::is_directory(path)) {
    const std::string advice = download_advice(path);
    check(advice.empty() || fs::exists(path), path, ": no such folder", advice);
    const std::string json = read_whole_file(path, kMostBytes);
    data_ = std::make_unique<Data>(parse_tokenizer_json(json, path),
                                   names_beside(fs::path(path).parent_path()), path, hash_of({json}));
    return;
  }
  TokenNames names = names_beside(path);
  const std::string json_path = path + "/tokenizer.json";
  if (fs::exists(json_path)) {
    const std::string json = read_whole_file(json_path, kMostBytes);
    data_ = std::make_unique<Data>(parse_tokenizer_json(json, json_path), names, json_path, hash_of({json}));
    return;
  }
  for (const auto& [vocabulary_name, merges_name] : kGpt2Files) {
    const std::string vocabulary_path = str(path, '/', vocabulary_name),
                      merges_path = str(path, '/', merges_name);
    if (!fs::exists(vocabulary_path) || !fs::exists(merges_path)) continue;
    const std::string vocabulary = read_whole_file(vocabulary_path, kMostBytes),
                      merges = read_whole_file(merges_path, kMostBytes);
    TokenizerParts parts = parse_gpt2_files(vocabulary, vocabulary_path, merges, merges_path);
    for (std::string* name : {&names.bos, &names.eos})
      if (name->empty() && !parts.added.empty()) *name = parts.added.front().content;
    data_ = std::make_unique<Data>(std::move(parts), names, vocabulary_path, hash_of({vocabulary, merges}));
    return;
  }
  fail(path +
       ": has no tokenizer: neither tokenizer.json, nor vocab.json and merges.txt, nor encoder.json and "
       "vocab.bpe");
}

int64_t Tokenizer::vocab() const { return data_->vocab; }

Encoding Tokenizer::encode(std::string_view text, bool add_special, std::span<const TextRange> plain) const {
  const ValidText valid(text);
  Lease scratch(*data_);
  Encoding encoding;
  if (add_special) encoding.ids = data_->prefix;
  encoding.ids.reserve(text.size() / 3);
  encoding.begins.reserve(text.size() / 3);
  encoding.begins.resize(encoding.ids.size());
  const size_t before = encoding.ids.size();
  uint32_t last = 0;  // normalization reorders marks, but starts must ascend
  const auto add = [&](int32_t id, uint32_t begin) {
    encoding.ids.push_back(id);
    encoding.begins.push_back(last = std::max(last, begin));
  };
  const auto add_token = [&](int32_t id, const AlignedView& token) { add(id, token.origin(0)); };
  const auto add_word = [&](const AlignedView& word) {
    data_->model.cut(word.text, [&](size_t begin, size_t end) {
      for (const Bpe::Piece& piece :
           data_->model.encode(word.text.substr(begin, end - begin), scratch->words))
        add(piece.id, word.origin(begin + piece.begin));
    });
  };
  data_->raw.split(
      valid.view(), plain,
      [&](const AlignedView& piece) {
        data_->normalized.split(
            data_->normalizer.apply(piece, scratch->texts), plain,
            [&](const AlignedView& part) { data_->pre_tokenizer.apply(part, add_word); }, add_token);
      },
      add_token);
  if (before < encoding.begins.size()) std::fill_n(encoding.begins.begin(), before, encoding.begins[before]);
  if (add_special)
    for (const int32_t id : data_->suffix) add(id, last);
  return encoding;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  StreamDecoder decoder(*this, skip_special);
  std::string text;
  for (const int32_t id : ids) text += decoder.take(id);
  return text + decoder.rest();
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const { return data_->id_of(token); }

std::string Tokenizer::token_text(int32_t id) const {
  const bool known = id >= 0 && id < data_->vocab && data_->tokens[static_cast<size_t>(id)];
  check(known, "the id ", id, " has no token; the vocabulary has ", data_->vocab, " ids");
  return *data_->tokens[static_cast<size_t>(id)];
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < data_->vocab && data_->special[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::bos() const { return data_->bos; }
std::optional<int32_t> Tokenizer::eos() const { return data_->eos; }
std::optional<int32_t> Tokenizer::pad() const { return data_->pad; }
const std::string& Tokenizer::identity() const { return data_->identity; }

std::string StreamDecoder::take(int32_t id) {
  std::string text;
  if (!skip_special_ || !tokenizer_.is_special(id)) tokenizer_.data_->decoder.add(id, state_, &text);
  return text;
}

std::string StreamDecoder::rest() {
  std::string text;
  tokenizer_.data_->decoder.finish(state_, &text);
  state_ = {};
  return text;
}

}  // namespace flatshard
