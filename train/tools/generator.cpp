#include "train/tools/generator.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <sstream>

#include "runtime/memory.h"
#include "train/models/published_weights.h"
#include "train/text/corpus.h"

namespace flatshard {
namespace {

// A prompt is processed in pieces of at most this many tokens, which bounds the memory of a pass and keeps
// its matrix products wide. Lengths are powers of two, so that few product shapes need to be prepared.
constexpr int64_t kPiece = 256;
int64_t piece_for(int64_t tokens) {
  return std::min(kPiece, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens))));
}

ModelConfig config_for(const std::string& folder, int64_t capacity) {
  const std::string path = folder + "/config.json";
  const ModelConfig config = read_hf_config(path);
  check(capacity >= 1, "a text has ", capacity, " tokens, must have at least 1");
  check(capacity <= config.max_positions, "prompt and continuation have ", capacity, " tokens, but ", path,
        " has positions for ", config.max_positions);
  return config;
}

}  // namespace

Generator::Generator(const std::string& folder, DType dtype, int64_t capacity, Device device)
    : streams_(device),
      stream_(streams_.add("compute")),
      model_(config_for(folder, capacity), dtype, stream_),
      capacity_(capacity),
      piece_(piece_for(capacity)),
      memory_("generation", device),
      host_("host", Device::cpu(), Placement::pinned),
      saved_("activations", device),
      scratch_("scratch", device) {
  read_model_weights(folder, model_.model(), model_.parameters(), stream_);
  allocate();
  plan();
  for (Arena* arena : {&memory_, &host_, &saved_, &scratch_}) arena->commit();
  allocate();
}

void Generator::allocate() {
  const ModelConfig& c = config();
  cache_ = KvCache(c, capacity_, model_.dtype(), memory_);
  x_ = memory_.alloc(model_.dtype(), {piece_, c.hidden});
  y_ = memory_.alloc(model_.dtype(), {piece_, c.hidden});
  inputs_ = memory_.alloc(DType::i32, {2 * piece_ + 4});
  logits_ = memory_.alloc(DType::f32, {1, c.vocab});
  host_inputs_ = host_.alloc(DType::i32, inputs_.shape);
  host_logits_ = host_.alloc(DType::f32, logits_.shape);
}

// Plans every piece length at the end of the longest text, where it has the most keys.
void Generator::plan() {
  StreamGroup planning(stream_.device(), {.planning = true});
  Stream& stream = planning.add("compute");
  for (int64_t n = 1; n <= piece_; n *= 2) {
    cache_.rewind(0);
    cache_.advance(capacity_ - n);
    run_piece(stream, n, true);
  }
}

int64_t Generator::memory_bytes() const {
  return model_.bytes() + memory_.peak() + host_.peak() + saved_.peak() + scratch_.peak();
}

void Generator::read_prompt(std::span<const int32_t> prompt) {
  check(!prompt.empty(), "the prompt is empty, must have at least one token");
  cache_.rewind(0);
  read(prompt);
  prompt_tokens_ = cache_.length();
  const float* logits = host_logits_.as<float>();
  after_prompt_.assign(logits, logits + config().vocab);
}

void Generator::generate(int64_t count, const Sampler& sampler, const std::function<void(int32_t)>& take) {
  check(prompt_tokens_ > 0, "there is no prompt to continue");
  check(count >= 0 && count <= capacity_ - prompt_tokens_, "a prompt of ", prompt_tokens_, " tokens and ",
        count, " more exceed the capacity of ", capacity_, " tokens");
  cache_.rewind(prompt_tokens_);
  std::span<const float> logits = after_prompt_;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t token = sampler.sample(logits, cache_.length());
    take(token);
    if (i + 1 == count) return;
    read({&token, 1});
    logits = {host_logits_.as<float>(), static_cast<size_t>(config().vocab)};
  }
}

// Appends tokens to the cache and leaves the logits of the last one in host_logits_.
void Generator::read(std::span<const int32_t> tokens) {
  const int64_t count = static_cast<int64_t>(tokens.size());
  check(count <= capacity_ - cache_.length(), "a text of ", cache_.length() + count,
        " tokens exceeds the capacity of ", capacity_, " tokens");
  for (int64_t begin = 0; begin < count;) {
    const int64_t n = piece_for(count - begin), past = cache_.length();
    int32_t* in = host_inputs_.as<int32_t>();
    for (int64_t i = 0; i < n; ++i) {
      in[i] = tokens[static_cast<size_t>(begin + i)];
      in[piece_ + i] = static_cast<int32_t>(past + i);
    }
    const int32_t boundaries[4]{0, static_cast<int32_t>(n), 0, static_cast<int32_t>(past + n)};
    std::copy(std::begin(boundaries), std::end(boundaries), in + 2 * piece_);
    begin += n;
    run_piece(stream_, n, begin == count);
    stream_.sync();
    cache_.advance(n);
  }
}

void Generator::run_piece(Stream& stream, int64_t tokens, bool with_logits) {
  copy(stream, inputs_, host_inputs_);
  Context c{.stream = stream,
            .scratch = scratch_,
            .saved = saved_,
            .tokens = inputs_.slice(0, tokens),
            .positions = inputs_.slice(piece_, piece_ + tokens),
            .boundaries = inputs_.slice(2 * piece_, 2 * piece_ + 2),
            .targets = {},
            .target_weights = {},
            .losses = {},
            .dtype = model_.dtype(),
            .cache = &cache_,
            .key_boundaries = inputs_.slice(2 * piece_ + 2, 2 * piece_ + 4),
            .logits = logits_};
  Model& model = model_.model();
  const int last = model.stage_count() - 1;
  Tensor x = x_.slice(0, tokens), y = y_.slice(0, tokens);
  for (int i = 0; i < last; ++i) {
    const ArenaScope scope(saved_);
    model.stage(i).forward(c, model_.view(i), y, x);
    std::swap(x, y);
  }
  if (!with_logits) return;
  model.stage(last).forward(c, model_.view(last), {}, x.slice(tokens - 1, tokens));
  copy(stream, host_logits_, logits_);
}

std::vector<int32_t> tokens_of_text(const std::string& text, int64_t vocab) {
  std::vector<int32_t> tokens;
  if (vocab == kByteVocab) {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    int32_t token = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    check(error == std::errc() && end == word.data() + word.size() && token >= 0 && token < vocab, "\"", word,
          "\" is not a token number: the vocabulary is ", vocab, ", so tokens are 0 to ", vocab - 1);
    tokens.push_back(token);
  }
  return tokens;
}

std::string text_of_token(int32_t token, int64_t vocab) {
  return vocab == kByteVocab ? std::string(1, static_cast<char>(token)) : std::to_string(token) + ' ';
}

}  // namespace flatshard
