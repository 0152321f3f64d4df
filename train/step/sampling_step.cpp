// Continues texts with the weights of a run, in passes like those of tools/inference/generator.cpp: the
// images of a prompt frame by frame, its tokens in pieces, then a token of each text at a time. The keys and
// values of earlier tokens are in a cache, for which an evaluation has memory where training keeps its
// activations.

#include <algorithm>
#include <bit>

#include "hub/frame_inputs.h"
#include "model/image_rows.h"
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
        vision_(engine.setup_.model.vision),
        axes_(family(engine.setup_.model.family).rope_axes ? 3 : 1),
        cache_(engine.setup_.model, kTextsAtOnce, capacity_, engine.setup_.compute,
               engine.memory_.activations),
        inputs_(engine.memory_.staging,
                engine.memory_.batch.alloc(
                    DType::i32, {boundaries_at() + 4 * kTextsAtOnce + (vision_ ? most_rows_ : 0)})),
        logits_(engine.memory_.staging,
                engine.memory_.batch.alloc(DType::f32, {kTextsAtOnce, engine.setup_.model.vocab})),
        axes_of_texts_(kTextsAtOnce) {
    if (!vision_) return;
    frame_ = FrameInputs(*vision_, capacity_, engine.memory_.batch, engine.memory_.staging);
    image_rows_ =
        engine.memory_.activations.alloc(engine.setup_.compute, {capacity_, engine.setup_.model.hidden});
  }

  // Begins a text that shows these images, and returns the token that follows it.
  int32_t read(int64_t text, std::span<const int32_t> tokens, const PromptImages& images) {
    cache_.rewind(text, 0);
    TextAxes& axes = axes_of_texts_[static_cast<size_t>(text)] = {};
    const bool has_images = images.frame_count() > 0;
    if (has_images) read_images(images, tokens);
    if (has_images && axes_ > 1) axes = TextAxes(*vision_, images, tokens);
    for (int64_t image_row = 0; !tokens.empty();) {
      const TextRows rows{text, piece_for(std::ssize(tokens))};
      const auto piece = tokens.first(static_cast<size_t>(rows.rows));
      const int64_t begin = image_row;
      if (has_images) image_row += write_places_of_images(piece);
      pass({&rows, 1}, piece, has_images ? image_rows_.slice(begin, image_row) : Tensor{});
      tokens = tokens.subspan(piece.size());
    }
    return likeliest(0);
  }
  // Appends a token to each of these texts, and replaces it with the token that follows.
  void append(std::span<const TextRows> texts, std::span<int32_t> tokens) {
    pass(texts, tokens);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = likeliest(static_cast<int64_t>(i));
  }

  // Plans a pass of every shape, with the most keys.
  void plan() {
    if (vision_) run_frame({});
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

  // Computes the rows of all frames.
  void read_images(const PromptImages& images, std::span<const int32_t> tokens) {
    int64_t rows = 0;
    for (int64_t frame = 0; frame < images.frame_count(); ++frame) {
      const int64_t begin = rows;
      rows += image_rows(*vision_, images.rows_of(frame));
      check(rows <= std::ssize(tokens), "a prompt of ", tokens.size(), " tokens has images of more");
      frame_.write(images, frame);
      run_frame(image_rows_.slice(begin, rows));
      engine_.compute_.sync();
    }
    const auto places = std::count_if(tokens.begin(), tokens.end(), [&](int32_t t) { return is_image(t); });
    check(places == rows, "a prompt has ", places, " image tokens, but its images have ", rows, " rows");
  }

  // Runs the layers that read images on the frame that was written.
  void run_frame(const Tensor& made) {
    frame_.upload(engine_.compute_);
    LayerCall c = engine_.call(Batch{}, {}, engine_.memory_.activations);
    c.images = frame_.on_device();
    engine_.forward_only(c, frame_.rows(), frame_.rows(), {0, engine_.model_.embedding_layer()}, {}, made);
  }

  bool is_image(int32_t token) const { return token == vision_->image_token; }

  // Writes which tokens of a piece are image tokens. Returns their number.
  int64_t write_places_of_images(std::span<const int32_t> piece) {
    int32_t* const place = inputs_.host.as<int32_t>() + image_places_at();
    int64_t count = 0;
    for (size_t i = 0; i < piece.size(); ++i)
      if (is_image(piece[i])) place[count++] = static_cast<int32_t>(i);
    return count;
  }

  int64_t boundaries_at() const { return (1 + axes_) * most_rows_; }
  int64_t image_places_at() const { return boundaries_at() + 4 * kTextsAtOnce; }

  // Computes these rows, with `images` in the places that were written for them.
  void pass(std::span<const TextRows> rows, std::span<const int32_t> tokens, const Tensor& images = {}) {
    write_inputs(rows, tokens);
    enqueue(rows, images);
    engine_.compute_.sync();
    for (const auto& [text, count] : rows) cache_.advance(text, count);
  }

  void write_inputs(std::span<const TextRows> rows, std::span<const int32_t> tokens) {
    int32_t* const in = inputs_.host.as<int32_t>();
    std::copy(tokens.begin(), tokens.end(), in);
    int32_t* boundary = in + boundaries_at();
    int64_t at = 0;
    for (const auto& [text, count] : rows) {
      const int64_t past = cache_.length(text);
      for (int64_t i = 0; i < count; ++i, ++at)
        for (int64_t axis = 0; axis < axes_; ++axis)
          in[most_rows_ + axis * std::ssize(tokens) + at] =
              axes_of_texts_[static_cast<size_t>(text)].position(axis, past + i);
      for (const int64_t value : {int64_t{0}, count, int64_t{0}, past + count})
        *boundary++ = static_cast<int32_t>(value);
    }
  }

  void enqueue(std::span<const TextRows> rows, const Tensor& images = {}) {
    int64_t tokens = 0;
    for (const TextRows& text : rows) tokens += text.rows;
    const int64_t texts = std::ssize(rows), boundaries = boundaries_at();
    inputs_.upload(engine_.compute_);
    const Tensor& in = inputs_.device;
    const Tensor positions = in.slice(most_rows_, most_rows_ + axes_ * tokens);
    LayerCall c = engine_.call({.tokens = in.slice(0, tokens),
                                .positions = axes_ == 1 ? positions : positions.view({axes_, tokens}),
                                .targets = {},
                                .boundaries = {}},
                               {}, engine_.memory_.activations);
    c.cache = &cache_;
    c.texts = rows;
    c.text_boundaries = in.slice(boundaries, boundaries + 4 * texts).view({texts, 4});
    c.logits = logits_.device.slice(0, texts);
    if (!images.empty()) c.images.rows = in.slice(image_places_at(), image_places_at() + images.shape[0]);
    const Model& model = engine_.model_;
    engine_.forward_only(c, {.tokens = tokens}, {.tokens = tokens},
                         {model.embedding_layer(), model.layer_count()}, images, {});
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
  std::optional<VisionConfig> vision_;
  int64_t axes_;  // axes of positions
  KvCache cache_;
  Mirror inputs_;  // tokens, positions, boundaries of texts, places of images
  Mirror logits_;
  std::vector<TextAxes> axes_of_texts_;
  FrameInputs frame_;
  Tensor image_rows_;  // image rows of the text that is being read
};

void Engine::plan_samples() {
  if (!setup_.config.log.samples.empty()) TextPasses(*this).plan();
}

std::optional<std::vector<Tokens>> Engine::continue_texts(std::span<const TextPrompt> prompts,
                                                          const std::optional<ImageInput>& image_input,
                                                          std::span<const int32_t> ends,
                                                          const ShareTokens& share) {
  TextPasses passes(*this);
  std::vector<Tokens> texts(prompts.size());
  for (size_t first = 0; first < prompts.size(); first += kTextsAtOnce) {
    std::vector<TextRows> rows;  // rows of the texts that continue
    Tokens next;
    const auto continues = [&](const TextRows& row, int32_t token) {
      const size_t at = first + static_cast<size_t>(row.text);
      if (std::find(ends.begin(), ends.end(), token) != ends.end()) return false;
      texts[at].push_back(token);
      return std::ssize(prompts[at].tokens) + std::ssize(texts[at]) < setup_.sample_length();
    };
    for (size_t at = first; at < std::min(first + kTextsAtOnce, prompts.size()); ++at) {
      rows.push_back({static_cast<int64_t>(at - first), 1});
      const PromptImages images =
          image_input ? read_images(*image_input, prompts[at].images) : PromptImages{};
      next.push_back(passes.read(rows.back().text, prompts[at].tokens, images));
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
