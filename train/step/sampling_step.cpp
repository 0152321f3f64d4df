// Continues texts with the weights of a run, in passes like those of tools/inference/generator.cpp: a prompt
// in pieces, then a token of each text at a time. The keys and values of earlier tokens are in a cache, for
// which an evaluation has memory where training keeps its activations.

#include <algorithm>
#include <bit>

#include "model/kv_cache.h"
#include "train/step/engine.h"

namespace flatshard {
namespace {

constexpr int64_t kTextsAtOnce = 8;
constexpr int64_t kPiece = 256;
int64_t piece_for(int64_t tokens) {
  return std::min(kPiece, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens))));
}

}  // namespace

class Engine::TextPasses {
 public:
  explicit TextPasses(Engine& engine)
      : engine_(engine),
        scopes_{ArenaScope(engine.memory_.batch), ArenaScope(engine.memory_.staging),
                ArenaScope(engine.memory_.activations)},
        capacity_(engine.setup_.sample_length()),
        most_rows_(std::max(piece_for(capacity_), kTextsAtOnce)),
        cache_(engine.setup_.model, kTextsAtOnce, capacity_, engine.setup_.compute,
               engine.memory_.activations),
        inputs_(engine.memory_.staging,
                engine.memory_.batch.alloc(DType::i32, {2 * most_rows_ + 4 * kTextsAtOnce})),
        logits_(engine.memory_.staging,
                engine.memory_.batch.alloc(DType::f32, {kTextsAtOnce, engine.setup_.model.vocab})) {}

  // Begins a text, and returns the token that follows it.
  int32_t read(int64_t text, std::span<const int32_t> tokens) {
    cache_.rewind(text, 0);
    while (!tokens.empty()) {
      const TextRows rows{text, piece_for(std::ssize(tokens))};
      pass({&rows, 1}, tokens.first(static_cast<size_t>(rows.rows)));
      tokens = tokens.subspan(static_cast<size_t>(rows.rows));
    }
    return likeliest(0);
  }
  // Appends a token to each of these texts, which become those that follow.
  void append(std::span<const TextRows> texts, std::span<int32_t> tokens) {
    pass(texts, tokens);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = likeliest(static_cast<int64_t>(i));
  }

  // Every shape of a pass, where it has the most keys.
  void plan() {
    for (int64_t n = 1; n <= piece_for(capacity_); n *= 2) {
      fill(0, capacity_ - n);
      const TextRows rows{0, n};
      enqueue({&rows, 1});
    }
    std::vector<TextRows> rows;
    for (int64_t text = 0; text < kTextsAtOnce; ++text) {
      fill(text, capacity_ - 1);
      rows.push_back({text, 1});
      enqueue(rows);
    }
  }

 private:
  void fill(int64_t text, int64_t length) {
    cache_.rewind(text, 0);
    cache_.advance(text, length);
  }

  void pass(std::span<const TextRows> rows, std::span<const int32_t> tokens) {
    write_inputs(rows, tokens);
    enqueue(rows);
    engine_.compute_.sync();
    for (const auto& [text, count] : rows) cache_.advance(text, count);
  }

  void write_inputs(std::span<const TextRows> rows, std::span<const int32_t> tokens) {
    int32_t* const in = inputs_.host.as<int32_t>();
    std::copy(tokens.begin(), tokens.end(), in);
    int32_t *position = in + most_rows_, *boundary = in + 2 * most_rows_;
    for (const auto& [text, count] : rows) {
      const int64_t past = cache_.length(text);
      for (int64_t i = 0; i < count; ++i) *position++ = static_cast<int32_t>(past + i);
      for (const int64_t value : {int64_t{0}, count, int64_t{0}, past + count})
        *boundary++ = static_cast<int32_t>(value);
    }
  }

  void enqueue(std::span<const TextRows> rows) {
    int64_t tokens = 0;
    for (const TextRows& text : rows) tokens += text.rows;
    const int64_t texts = std::ssize(rows), boundaries = 2 * most_rows_;
    inputs_.upload(engine_.compute_);
    const Tensor& in = inputs_.device;
    Context c = engine_.context({.tokens = in.slice(0, tokens),
                                 .positions = in.slice(most_rows_, most_rows_ + tokens),
                                 .targets = {},
                                 .boundaries = {}},
                                {}, engine_.memory_.activations);
    c.cache = &cache_;
    c.texts = rows;
    c.text_boundaries = in.slice(boundaries, boundaries + 4 * texts).view({texts, 4});
    c.logits = logits_.device.slice(0, texts);
    engine_.forward_only(c, {.tokens = tokens}, {.tokens = tokens});
    logits_.download(engine_.compute_);
  }

  int32_t likeliest(int64_t row) const {
    if (!engine_.has_losses()) return 0;
    const int64_t V = logits_.host.shape[1];
    const float* const z = logits_.host.as<float>() + row * V;
    return static_cast<int32_t>(std::max_element(z, z + V) - z);
  }

  Engine& engine_;
  std::array<ArenaScope, 3> scopes_;
  int64_t capacity_, most_rows_;
  KvCache cache_;
  Mirror inputs_;  // tokens, positions, boundaries of texts
  Mirror logits_;
};

void Engine::plan_samples() {
  if (!setup_.config.log.samples.empty()) TextPasses(*this).plan();
}

std::optional<std::vector<Tokens>> Engine::continue_texts(std::span<const Tokens> prompts,
                                                          std::span<const int32_t> ends,
                                                          const ShareTokens& share) {
  TextPasses passes(*this);
  std::vector<Tokens> texts(prompts.size());
  for (size_t first = 0; first < prompts.size(); first += kTextsAtOnce) {
    std::vector<TextRows> rows;  // of the texts that continue
    Tokens next;
    const auto continues = [&](const TextRows& row, int32_t token) {
      const size_t at = first + static_cast<size_t>(row.text);
      if (std::find(ends.begin(), ends.end(), token) != ends.end()) return false;
      texts[at].push_back(token);
      return std::ssize(prompts[at]) + std::ssize(texts[at]) < setup_.sample_length();
    };
    for (size_t at = first; at < std::min(first + kTextsAtOnce, prompts.size()); ++at) {
      rows.push_back({static_cast<int64_t>(at - first), 1});
      next.push_back(passes.read(rows.back().text, prompts[at]));
    }
    while (!rows.empty()) {
      if (!share(next)) return {};
      std::vector<TextRows> rest;
      Tokens tokens;
      for (size_t i = 0; i < rows.size(); ++i)
        if (continues(rows[i], next[i])) {
          rest.push_back(rows[i]);
          tokens.push_back(next[i]);
        }
      rows = std::move(rest);
      next = std::move(tokens);
      if (!rows.empty()) passes.append(rows, next);
    }
  }
  return texts;
}

}  // namespace flatshard
