#include "tools/inference/generator.h"

#include <algorithm>
#include <bit>

#include "kernels/gemm_rows.h"
#include "model/image_rows.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

// A prompt is processed in pieces of at most this many tokens, which bounds the memory of a pass and keeps
// its matrix products wide. Lengths are powers of two, so that only a few product shapes must be prepared.
constexpr int64_t kPiece = 256;
int64_t piece_for(int64_t tokens) {
  return std::min(kPiece, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens))));
}

ModelConfig config_for(const ModelSource& source, const GeneratorOptions& options) {
  ModelConfig config = read_model_config(source);
  check(options.texts >= 1, "there are ", options.texts, " texts, must be at least 1");
  check(options.capacity >= 1, "a text has ", options.capacity, " tokens, must have at least 1");
  check(options.capacity <= config.max_positions, "prompt and continuation have ", options.capacity,
        " tokens, but ", source.folder, "/config.json has positions for ", config.max_positions);
  config.context = options.capacity;
  return config;
}

}  // namespace

Generator::Generator(const ModelSource& source, const GeneratorOptions& options)
    :  // Gathering overlaps with computation.
      streams_(options.device, {.order = options.world ? StreamOrder::concurrent : StreamOrder::in_order}),
      stream_(streams_.add("compute")),
      options_(options),
      weights_(source, config_for(source, options), options.dtype, streams_, stream_, options.world),
      piece_(piece_for(options.capacity)),
      // The rows of a larger product would depend on their number (kernels/gemm_rows.h).
      batch_(std::min(options.texts, kFewRows)),
      memory_("generation", options.device),
      host_("host", Device::cpu(), Placement::pinned),
      saved_("activations", options.device),
      scratch_("scratch", options.device),
      texts_(static_cast<size_t>(options.texts)),
      images_(static_cast<size_t>(options.texts)),
      axes_of_texts_(static_cast<size_t>(options.texts)),
      next_logits_(static_cast<size_t>(options.texts)) {
  if (config().vision) image_pass_.emplace(weights_, options.dtype, options.capacity);
  allocate();
  plan();
  for (Arena* arena : {&memory_, &host_, &saved_, &scratch_}) arena->commit();
  allocate();
  for (std::vector<int32_t>& text : texts_) text.reserve(static_cast<size_t>(options.capacity));
  for (std::vector<float>& logits : next_logits_) logits.resize(static_cast<size_t>(config().vocab));
}

void Generator::allocate() {
  const ModelConfig& c = config();
  const int64_t rows = std::max(piece_, batch_);
  cache_ = KvCache(c, options_.texts, options_.capacity, options_.dtype, memory_);
  x_ = memory_.alloc(options_.dtype, {rows, c.hidden});
  y_ = memory_.alloc(options_.dtype, {rows, c.hidden});
  inputs_ = memory_.alloc(DType::i32, {(1 + axes()) * rows + 4 * batch_ + (image_pass_ ? rows : 0)});
  logits_ = memory_.alloc(DType::f32, {batch_, c.vocab});
  states_ = memory_.alloc(options_.dtype, {piece_, c.hidden});
  host_inputs_ = host_.alloc(DType::i32, inputs_.shape);
  pass_logits_ = host_.alloc(DType::f32, logits_.shape);
  host_states_ = host_.alloc(options_.dtype, states_.shape);
  if (!image_pass_) return;
  image_rows_ = memory_.alloc(options_.dtype, {options_.capacity, c.hidden});
  image_pass_->allocate(memory_, host_);
}

// Plans every shape of a pass at the end of the longest texts, where they have the most keys.
void Generator::plan() {
  StreamSet planning(options_.device, {.planning = true});
  Stream& stream = planning.add("compute");
  const auto fill_up_to = [&](int64_t text, int64_t length) {
    cache_.rewind(text, 0);
    cache_.advance(text, length);
  };
  for (int64_t n = 1; n <= piece_; n *= 2) {
    fill_up_to(0, options_.capacity - n);
    for (const Output output : {Output::logits, Output::states}) run_pass(stream, {{TextRows{0, n}}}, output);
  }
  if (image_pass_) image_pass_->plan(stream, scratch_, saved_);
  std::vector<TextRows> rows;
  for (int64_t text = 0; text < batch_; ++text) {
    fill_up_to(text, options_.capacity - 1);
    rows.push_back({text, 1});
    run_pass(stream, rows, Output::logits);
  }
}

int64_t Generator::memory_bytes() const {
  return weights_.bytes() + memory_.peak() + host_.peak() + saved_.peak() + scratch_.peak();
}

void Generator::check_capacity(int64_t tokens) const {
  check(tokens <= options_.capacity, "a text of ", tokens, " tokens exceeds the capacity of ",
        options_.capacity, " tokens");
}

void Generator::read_prompt(int64_t text, std::span<const int32_t> prompt, PromptImages images) {
  texts_[static_cast<size_t>(text)].clear();
  images_[static_cast<size_t>(text)] = {};
  read_changes(text, prompt, std::move(images));
}

void Generator::read_changes(int64_t text, std::span<const int32_t> tokens, PromptImages images) {
  check(!tokens.empty(), "the prompt is empty, must have at least one token");
  check_capacity(static_cast<int64_t>(tokens.size()));
  std::vector<int32_t>& before = texts_[static_cast<size_t>(text)];
  const auto [changed, unused] = std::mismatch(tokens.begin(), tokens.end(), before.begin(), before.end());
  // The last token is always read, for the logits that follow it.
  size_t kept = std::min(static_cast<size_t>(changed - tokens.begin()), tokens.size() - 1);
  PromptImages& images_before = images_[static_cast<size_t>(text)];
  if (images.frame_count() > 0 || images_before.frame_count() > 0)
    kept = std::min(kept, tokens_before_changed_image(tokens, images, images_before));
  before.resize(kept);
  cache_.rewind(text, static_cast<int64_t>(kept));
  if (images.frame_count() > 0)
    read_images(images, std::count_if(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(kept),
                                      [&](int32_t token) { return is_image(token); }));
  images_before = std::move(images);
  TextAxes& positions = axes_of_texts_[static_cast<size_t>(text)];
  positions = axes() == 1 || images_before.frame_count() == 0
                  ? TextAxes()
                  : TextAxes(*config().vision, images_before, tokens);
  read(text, tokens.subspan(kept), Output::logits);
}

// The number of tokens before the first token of a new or changed image.
size_t Generator::tokens_before_changed_image(std::span<const int32_t> tokens, const PromptImages& images,
                                              const PromptImages& before) const {
  check(image_pass_.has_value(), "the prompt has images, but the model reads none");
  const int64_t same = common_frames(images, before);
  int64_t rows_of_same = 0, rows = 0, image_tokens = 0;
  for (int64_t frame = 0; frame < images.frame_count(); ++frame) {
    rows += image_pass_->rows_of(images, frame);
    if (frame < same) rows_of_same = rows;
  }
  size_t changed = tokens.size();
  for (size_t i = 0; i < tokens.size(); ++i)
    if (is_image(tokens[i]) && image_tokens++ == rows_of_same) changed = i;
  check(image_tokens == rows, "the prompt has ", image_tokens, " image tokens, but its images have ", rows,
        " rows");
  return changed;
}

// Computes the rows of image tokens, beginning with this row.
void Generator::read_images(const PromptImages& images, int64_t first_row) {
  int64_t frame = 0, row = 0;
  for (; frame < images.frame_count(); ++frame) {
    const int64_t count = image_pass_->rows_of(images, frame);
    if (row + count > first_row) break;
    row += count;
  }
  next_image_row_ = first_row - row;
  for (int64_t at = 0; frame < images.frame_count(); ++frame) {
    const int64_t count = image_pass_->rows_of(images, frame);
    image_pass_->run(stream_, images, frame, image_rows_.slice(at, at + count), scratch_, saved_);
    at += count;
  }
}

std::span<const float> Generator::logits(int64_t text) const {
  check(!tokens(text).empty(), "there is no prompt to continue");
  return next_logits_[static_cast<size_t>(text)];
}

// Appends tokens to a text piece by piece. The output belongs to the last piece.
void Generator::read(int64_t text, std::span<const int32_t> tokens, Output output) {
  while (!tokens.empty()) {
    const int64_t n = piece_for(static_cast<int64_t>(tokens.size()));
    const std::span<const int32_t> piece = tokens.first(static_cast<size_t>(n));
    tokens = tokens.subspan(piece.size());
    const TextRows rows{text, n};
    write_inputs({&rows, 1}, piece);
    const bool wanted = tokens.empty() || output == Output::states;
    run_pass(stream_, {&rows, 1}, wanted ? output : Output::none, images_of(text, piece));
    stream_.sync();
    cache_.advance(text, n);
    std::vector<int32_t>& all = texts_[static_cast<size_t>(text)];
    all.insert(all.end(), piece.begin(), piece.end());
    if (tokens.empty() && output == Output::logits) {
      const float* logits = pass_logits_.as<float>();
      next_logits_[static_cast<size_t>(text)].assign(logits, logits + config().vocab);
    }
  }
}

// Writes the indices of a piece's image tokens, and returns the rows that replace them.
Tensor Generator::images_of(int64_t text, std::span<const int32_t> piece) {
  if (images_[static_cast<size_t>(text)].frame_count() == 0) return {};
  int32_t* row = host_inputs_.as<int32_t>() + image_inputs_at();
  int64_t count = 0;
  for (size_t i = 0; i < piece.size(); ++i)
    if (is_image(piece[i])) row[count++] = static_cast<int32_t>(i);
  next_image_row_ += count;
  return image_rows_.slice(next_image_row_ - count, next_image_row_);
}

void Generator::append(std::span<const NextToken> next) {
  while (!next.empty()) {
    const auto pass = next.first(std::min(next.size(), static_cast<size_t>(batch_)));
    append_pass(pass);
    next = next.subspan(pass.size());
  }
}

void Generator::append_pass(std::span<const NextToken> next) {
  std::vector<TextRows> rows;
  std::vector<int32_t> tokens;
  for (const auto& [text, token] : next) {
    check_capacity(cache_.length(text) + 1);
    rows.push_back({text, 1});
    tokens.push_back(token);
  }
  write_inputs(rows, tokens);
  run_pass(stream_, rows, Output::logits);
  stream_.sync();
  const float* logits = pass_logits_.as<float>();
  for (const auto& [text, token] : next) {
    cache_.advance(text, 1);
    texts_[static_cast<size_t>(text)].push_back(token);
    std::copy_n(logits, config().vocab, next_logits_[static_cast<size_t>(text)].begin());
    logits += config().vocab;
  }
}

std::vector<double> Generator::mean_state(std::span<const int32_t> tokens) {
  check(!tokens.empty(), "the text is empty, must have at least one token");
  check_capacity(static_cast<int64_t>(tokens.size()));
  texts_[0].clear();
  images_[0] = {};
  axes_of_texts_[0] = {};
  cache_.rewind(0, 0);
  const size_t hidden = static_cast<size_t>(config().hidden);
  std::vector<double> mean(hidden);
  for (size_t begin = 0; begin < tokens.size();) {
    const size_t n = static_cast<size_t>(piece_for(static_cast<int64_t>(tokens.size() - begin)));
    read(0, tokens.subspan(begin, n), Output::states);
    begin += n;
    visit_float(options_.dtype, [&]<class T>() {
      for (size_t i = 0; i < n * hidden; ++i)
        mean[i % hidden] += static_cast<double>(static_cast<float>(host_states_.as<T>()[i]));
    });
  }
  for (double& value : mean) value /= static_cast<double>(tokens.size());
  texts_[0].clear();
  return mean;
}

void Generator::write_inputs(std::span<const TextRows> rows, std::span<const int32_t> tokens) {
  const int64_t most = x_.shape[0];
  int32_t* in = host_inputs_.as<int32_t>();
  std::copy(tokens.begin(), tokens.end(), in);
  int32_t* boundary = in + (1 + axes()) * most;
  int64_t at = 0;
  for (const auto& [text, count] : rows) {
    const int64_t past = cache_.length(text);
    for (int64_t i = 0; i < count; ++i, ++at)
      for (int64_t axis = 0; axis < axes(); ++axis)
        in[most + axis * std::ssize(tokens) + at] =
            axes_of_texts_[static_cast<size_t>(text)].position(axis, past + i);
    for (const int64_t value : {int64_t{0}, count, int64_t{0}, past + count})
      *boundary++ = static_cast<int32_t>(value);
  }
}

// Runs a forward pass over the rows of texts. The rows of `images` replace the image tokens written by
// images_of(). Logits are those of the last row of each text.
void Generator::run_pass(Stream& stream, std::span<const TextRows> rows, Output output,
                         const Tensor& images) {
  copy(stream, inputs_, host_inputs_);
  int64_t tokens = 0;
  for (const TextRows& text : rows) tokens += text.rows;
  const int64_t texts = static_cast<int64_t>(rows.size()), most = x_.shape[0],
                boundaries_at = (1 + axes()) * most;
  LayerCall c{.stream = stream,
              .scratch = scratch_,
              .saved = saved_,
              .tokens = inputs_.slice(0, tokens),
              .positions = inputs_.slice(most, most + axes() * tokens),
              .boundaries = {},
              .targets = {},
              .target_weights = {},
              .losses = {},
              .dtype = options_.dtype,
              .cache = &cache_,
              .texts = rows,
              .text_boundaries = inputs_.slice(boundaries_at, boundaries_at + 4 * texts).view({texts, 4})};
  if (!images.empty()) c.images.rows = inputs_.slice(image_inputs_at(), image_inputs_at() + images.shape[0]);
  const int last = weights_.model().layer_count() - 1;
  const Tensor x = weights_.forward(c, {.first = weights_.model().embedding_layer(),
                                        .end = last,
                                        .next = output == Output::none ? kNoLayer : last,
                                        .rows = {.tokens = tokens},
                                        .input = images,
                                        .buffers = {x_, y_}});
  if (output == Output::logits) {
    c.logits = logits_.slice(0, texts);
    weights_.head(c, x.slice(tokens - texts, tokens));  // texts of one row each, or one text of several
    copy(stream, pass_logits_.slice(0, texts), c.logits);
  } else if (output == Output::states) {
    c.states = states_.slice(0, tokens);
    weights_.head(c, x);
    copy(stream, host_states_.slice(0, tokens), c.states);
  }
}

}  // namespace flatshard
